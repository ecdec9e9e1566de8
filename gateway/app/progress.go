package app

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal, and nothing anywhere else.
type progress struct {
	out io.Writer
	bar *progressbar.ProgressBar
}

const progressTick = 100 * time.Millisecond

// newProgress returns a progress that shows itself on out, stderr as a rule, if that is a terminal.
func newProgress(out io.Writer) *progress {
	if file, ok := out.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return &progress{}
	}
	return &progress{out: out}
}

// begin starts a bar; total -1: nobody knows how much there is.
func (p *progress) begin(what string, total int64) {
	if p.out == nil {
		return
	}
	p.end()
	p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(progressTick), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
}

// step moves the bar on by one.
func (p *progress) step() {
	if p.bar != nil {
		_ = p.bar.Add64(1) // a bar that cannot be drawn hinders nothing
	}
}

// set moves the bar; a total that grew moves its end.
func (p *progress) set(done, total int64) {
	if p.bar == nil {
		return
	}
	if total > 0 && p.bar.GetMax64() != total {
		p.bar.ChangeMax64(total)
	}
	_ = p.bar.Set64(done) // as in step
}

// end removes the bar.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear() // as in step
		p.bar = nil
	}
}
