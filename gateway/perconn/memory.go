package perconn

import (
	"errors"
	"os"
	"time"

	"github.com/hoplog/hoplog/gateway/eventloop"
	"github.com/hoplog/hoplog/gateway/http1"
)

// fill waits for more to come.
func (c *conn) fill() error {
	n := copy(c.memory, c.have)
	if n == len(c.memory) { // it is less than http1.MaxHead, which the parser does not ask for more than
		grow := min(len(c.memory), http1.MaxHead-len(c.memory))
		if err := c.keep(grow); err != nil {
			return err
		}
		c.request.Reset() // it borrows from what is given up
		c.memory = append(make([]byte, 0, n+grow), c.memory...)[:n+grow]
	} else if n == 0 && len(c.memory) > readBytes {
		c.release(len(c.memory) - readBytes)
		c.request.Reset()
		c.memory = make([]byte, readBytes)
	}
	more, err := c.net.Read(c.memory[n:])
	c.have = c.memory[:n+more]
	switch {
	case more > 0:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return eventloop.ErrSlow
	}
	return errQuiet
}

// keep counts bytes that the connection is about to keep. ErrBusy: all connections together keep too many; this one, which
// asked last, has to go.
func (c *conn) keep(n int) error {
	if c.server.kept.Add(int64(n)) > keptBytes {
		c.server.kept.Add(int64(-n))
		return eventloop.ErrBusy
	}
	c.kept += n
	return nil
}

// release takes bytes off the count.
func (c *conn) release(n int) {
	c.kept -= n
	c.server.kept.Add(int64(-n))
}

// flush writes the answers that there are.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if size := cap(c.out); size > pageBytes {
		if err := c.keep(size); err != nil {
			c.server.counts.End(err)
			c.out = nil
			return err
		}
		defer c.release(size)
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(c.server.config.WriteTimeout))
	_, err := c.net.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 2*writeBytes {
		c.out = nil
	}
	return err
}
