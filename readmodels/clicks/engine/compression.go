package engine

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// requestBody undoes the two layers a request body may have: the HTTP one (Content-Encoding), then ClickHouse's own
// (decompress=1). What comes out is bounded by limit bytes; beyond it reading fails with errTooLarge.
func requestBody(r *http.Request, blocks bool, limit int64) (io.ReadCloser, error) {
	var body io.Reader = r.Body
	closer := func() error { return nil }
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		gz, err := gzip.NewReader(body)
		if err != nil {
			return nil, badBody(err)
		}
		body = gz
	case "deflate":
		z, err := zlib.NewReader(body)
		if err != nil {
			return nil, badBody(err)
		}
		body = z
	case "br":
		body = brotli.NewReader(body)
	case "zstd":
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, badBody(err)
		}
		body, closer = z, func() error { z.Close(); return nil }
	default:
		return nil, &exception{code: codeNotImplemented, message: fmt.Sprintf("Unknown compression method '%s'", encoding)}
	}
	if blocks {
		body = blockReader{compress.NewReader(bufio.NewReaderSize(body, 64<<10))}
	}
	return &boundedBody{Reader: body, left: limit, closer: closer}, nil
}

func badBody(err error) error {
	return &exception{code: codeIncorrectData, message: "Cannot decompress the request body: " + err.Error()}
}

// blockReader gives the plain io.EOF that package compress wraps.
type blockReader struct{ r *compress.Reader }

func (b blockReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.EOF
	}
	return n, err
}

var errTooLarge = errors.New("request body is too large")

type boundedBody struct {
	io.Reader
	left   int64
	closer func() error
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

func (b *boundedBody) Close() error { return b.closer() }

// responseEncoder returns the HTTP encoding to use and a function that wraps w in it. As in ClickHouse, the client has
// to ask twice: enable_http_compression=1 and Accept-Encoding.
func responseEncoder(accept string) (name string, wrap func(io.Writer) io.WriteCloser) {
	accepted := map[string]bool{}
	for part := range strings.SplitSeq(accept, ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		accepted[strings.ToLower(coding)] = strings.ReplaceAll(weight, " ", "") != "q=0"
	}
	switch {
	case accepted["br"]:
		return "br", func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 1) }
	case accepted["zstd"]:
		return "zstd", func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
			if err != nil {
				panic(err) // only bad options fail
			}
			return z
		}
	case accepted["gzip"]:
		return "gzip", func(w io.Writer) io.WriteCloser {
			z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
			if err != nil {
				panic(err) // only a bad level fails
			}
			return z
		}
	case accepted["deflate"]:
		return "deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
	}
	return "", nil
}

// blockWriter writes ClickHouse's own compressed blocks (compress=1), one per compressedBlock bytes.
type blockWriter struct {
	w   io.Writer
	c   *compress.Writer
	buf []byte
}

const compressedBlock = 1 << 20

func newBlockWriter(w io.Writer, method string) *blockWriter {
	m := compress.LZ4
	switch strings.ToUpper(method) {
	case "ZSTD":
		m = compress.ZSTD
	case "LZ4HC":
		m = compress.LZ4HC
	case "NONE":
		m = compress.None
	}
	return &blockWriter{w: w, c: compress.NewWriter(0, m), buf: make([]byte, 0, compressedBlock)}
}

func (b *blockWriter) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		n := min(len(p), compressedBlock-len(b.buf))
		b.buf = append(b.buf, p[:n]...)
		p = p[n:]
		if len(b.buf) == compressedBlock {
			if err := b.Close(); err != nil {
				return 0, err
			}
		}
	}
	return written, nil
}

// Close writes what is left; the writer can be used again.
func (b *blockWriter) Close() error {
	if len(b.buf) == 0 {
		return nil
	}
	if err := b.c.Compress(b.buf); err != nil {
		return err
	}
	b.buf = b.buf[:0]
	_, err := b.w.Write(b.c.Data)
	return err
}
