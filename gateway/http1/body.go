package http1

import "bytes"

// Body finds the end of a request's body, which nobody reads. The zero value has no body left.
type Body struct {
	left    int64 // of the body or of the chunk, its line's end included
	used    int   // bytes that the body took so far
	chunked bool
	inside  bool // left counts bytes of a chunk
	last    bool // trailers follow
	line    int  // bytes of an unfinished line
	cr      bool // the unfinished line ends in CR
	digits  int
	size    int64
	after   byte // what ended the size's digits: a space or ';', 0 if nothing has
}

// Start begins the body of a request. ErrBodyTooLarge: by its length.
func (d *Body) Start(length int64) error {
	*d = Body{chunked: length == Chunked}
	if length > MaxBody {
		return ErrBodyTooLarge
	}
	d.left = max(0, length)
	return nil
}

// Done reports whether nothing of the body is missing.
func (d *Body) Done() bool { return !d.chunked && d.left == 0 }

// Skip returns how many of the bytes in b belong to the body.
func (d *Body) Skip(b []byte) (n int, err error) {
	if !d.chunked {
		n = int(min(d.left, int64(len(b))))
		d.left -= int64(n)
		return n, nil
	}
	for n < len(b) && d.chunked {
		took, err := d.step(b[n:])
		if err != nil {
			return n, err
		}
		n += took
		if d.used += took; d.used > MaxBody {
			return n, ErrBodyTooLarge
		}
	}
	return n, nil
}

// step takes a piece of a chunk, or one byte of what frames it.
func (d *Body) step(b []byte) (int, error) {
	if d.inside && d.left > 2 {
		n := int(min(d.left-2, int64(len(b))))
		d.left -= int64(n)
		return n, nil
	}
	if d.inside {
		if b[0] != "\n\r"[d.left-1] {
			return 0, ErrMalformed
		}
		if d.left--; d.left == 0 {
			d.inside = false
		}
		return 1, nil
	}
	return 1, d.frame(b[0])
}

// frame takes a byte of a chunk's first line or of a trailer.
func (d *Body) frame(c byte) error {
	switch {
	case d.cr:
		if c != '\n' {
			return ErrMalformed
		}
		return d.endLine()
	case c == '\r':
		d.cr = true
		return nil
	case c < ' ' && c != '\t' || c == 0x7F:
		return ErrMalformed
	}
	d.line++
	if d.last {
		return d.trailer(c)
	}
	return d.sizeByte(c)
}

// sizeByte: hexadecimal digits, then perhaps white space or extensions, which are ignored (RFC 9112, section 7.1.1).
func (d *Body) sizeByte(c byte) error {
	digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
	if '0' <= c && c <= '9' {
		digit = int(c - '0')
	} else if c < 'A' {
		digit = -1
	}
	switch {
	case d.after == 0 && digit >= 0:
		if d.digits++; d.digits > 8 {
			return ErrBodyTooLarge
		}
		d.size = d.size<<4 | int64(digit)
		return nil
	case d.digits == 0:
		return ErrMalformed
	case d.after == ';':
		return nil
	case c == ' ' || c == '\t':
		d.after = ' '
		return nil
	case c == ';' && d.after == 0:
		d.after = c
		return nil
	}
	return ErrMalformed
}

// trailer: no line may begin with a space, which would fold it.
func (d *Body) trailer(c byte) error {
	if d.line == 1 && !tokens[c] {
		return ErrMalformed
	}
	return nil
}

func (d *Body) endLine() error {
	empty := d.line == 0
	switch {
	case d.last && empty:
		*d = Body{used: d.used}
		return nil
	case d.last:
	case d.digits == 0:
		return ErrMalformed
	case d.size == 0:
		d.last = true
	default:
		d.inside, d.left = true, d.size+2
	}
	d.line, d.cr, d.digits, d.size, d.after = 0, false, 0, 0, 0
	return nil
}
