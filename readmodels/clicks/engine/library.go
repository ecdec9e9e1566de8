package engine

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// pointer is an address in the library's memory; the Go runtime neither moves nor frees it.
type pointer = unsafe.Pointer

// library is the C interface of libchdb 26.5 (chdb.h). Each function may be called from any thread; one connection
// serves one call at a time, different connections run side by side.
type library struct {
	connect          func(argc int32, argv pointer) pointer
	closeConnection  func(conn pointer)
	setSignals       func(enabled int32)
	query            func(conn, text pointer, textLen uint64, format pointer, formatLen uint64, names, nameLens, values, valueLens pointer, count uint64) pointer
	stream           func(conn, text pointer, textLen uint64, format pointer, formatLen uint64, names, nameLens, values, valueLens pointer, count uint64) pointer
	fetch            func(conn, stream pointer) pointer
	cancel           func(conn, stream pointer)
	destroy          func(result pointer)
	buffer           func(result pointer) pointer
	length           func(result pointer) uint64
	resultError      func(result pointer) pointer
	storageRowsRead  func(result pointer) uint64
	storageBytesRead func(result pointer) uint64
	rowsWritten      func(result pointer) uint64
	bytesWritten     func(result pointer) uint64
}

// loadLibrary maps the shared library and turns its own signal handlers off: they would replace those of the Go
// runtime, and on a crash they print for five minutes before the process ends.
func loadLibrary(path string) (lib *library, err error) {
	handle, err := purego.Dlopen(path, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("loading clickhouse engine: %w", err)
	}
	defer func() { // purego panics when a symbol is missing
		if r := recover(); r != nil {
			lib, err = nil, fmt.Errorf("loading clickhouse engine: %v", r)
		}
	}()
	lib = &library{}
	for name, target := range map[string]any{
		"chdb_connect": &lib.connect, "chdb_close_conn": &lib.closeConnection,
		"chdb_set_signal_handlers_enabled": &lib.setSignals,
		"chdb_query_with_params_n":         &lib.query, "chdb_stream_query_with_params_n": &lib.stream,
		"chdb_stream_fetch_result": &lib.fetch, "chdb_stream_cancel_query": &lib.cancel,
		"chdb_destroy_query_result": &lib.destroy, "chdb_result_buffer": &lib.buffer,
		"chdb_result_length": &lib.length, "chdb_result_error": &lib.resultError,
		"chdb_result_storage_rows_read": &lib.storageRowsRead, "chdb_result_storage_bytes_read": &lib.storageBytesRead,
		"chdb_result_rows_written": &lib.rowsWritten, "chdb_result_bytes_written": &lib.bytesWritten,
	} {
		purego.RegisterLibFunc(target, handle, name)
	}
	saved := saveSignals()
	lib.setSignals(0)
	restoreSignals(saved)
	return lib, nil
}

// cStrings is a C array of strings with the Go memory behind it. It must be kept alive until the call returns.
type cStrings struct {
	pointers []pointer
	lengths  []uint64
	pinner   runtime.Pinner
}

func newCStrings(values []string) *cStrings {
	c := &cStrings{pointers: make([]pointer, 0, len(values)+1), lengths: make([]uint64, 0, len(values)+1)}
	for _, v := range values {
		b := append([]byte(v), 0)
		c.pinner.Pin(&b[0])
		c.pointers = append(c.pointers, pointer(&b[0]))
		c.lengths = append(c.lengths, uint64(len(v)))
	}
	c.pointers, c.lengths = append(c.pointers, nil), append(c.lengths, 0)
	return c
}

func (c *cStrings) array() pointer { return pointer(unsafe.SliceData(c.pointers)) }
func (c *cStrings) sizes() pointer { return pointer(unsafe.SliceData(c.lengths)) }
func (c *cStrings) release()       { c.pinner.Unpin() }

// goString copies a zero-terminated string out of the library's memory.
func goString(p pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
