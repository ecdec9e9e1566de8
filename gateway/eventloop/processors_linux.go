package eventloop

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// extraProcessors keeps GOMAXPROCS above what the Go runtime chooses, which it does not do itself any more once it was told a
// number: a limit of the container's processors may be changed while it runs.
type extraProcessors struct {
	mu    sync.Mutex
	extra int
	stop  chan struct{} // ends following; nil while nobody serves
}

var processors extraProcessors

// followEvery is how often the runtime is asked, as a rule twice a minute: each time stops the world twice for some
// microseconds.
const followEvery = 30 * time.Second

// add makes so many more.
func (p *extraProcessors) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.extra += n
	if processorsAreFixed() {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
		return
	}
	p.set()
	switch {
	case p.extra > 0 && p.stop == nil:
		p.stop = make(chan struct{})
		go p.follow(p.stop)
	case p.extra == 0 && p.stop != nil:
		close(p.stop)
		p.stop = nil
	}
}

// own returns how many there would be if nobody served.
func (p *extraProcessors) own() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return runtime.GOMAXPROCS(0) - p.extra
}

// set makes them as many as the runtime would choose now, and ours.
func (p *extraProcessors) set() {
	runtime.SetDefaultGOMAXPROCS()
	if p.extra > 0 {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + p.extra)
	}
}

func (p *extraProcessors) follow(stop <-chan struct{}) {
	every := time.NewTicker(followEvery)
	defer every.Stop()
	for {
		select {
		case <-stop:
			return
		case <-every.C:
			p.mu.Lock()
			if p.extra > 0 {
				p.set()
			}
			p.mu.Unlock()
		}
	}
}

// processorsAreFixed reports whether the operator set their number, which the runtime then keeps to.
func processorsAreFixed() bool {
	n, err := strconv.Atoi(os.Getenv("GOMAXPROCS"))
	return err == nil && n > 0
}
