package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hoplog/hoplog/readmodels/clicks/engine"
	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" && !engine.IsChild() {
		runParent()
	}
	enginetest.Main(m)
}

// dial is clickhouse-go as the product uses it, with changes of the test.
func dial(t testing.TB, addr string, change ...func(*clickhouse.Options)) driver.Conn {
	t.Helper()
	o := &clickhouse.Options{Addr: []string{addr}, Protocol: clickhouse.HTTP}
	for _, c := range change {
		c(o)
	}
	conn, err := clickhouse.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func exec(t testing.TB, conn driver.Conn, query string, args ...any) {
	t.Helper()
	if err := conn.Exec(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func count(t testing.TB, conn driver.Conn, query string) (n uint64) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

type answer struct {
	status int
	header http.Header
	body   string
}

func do(t testing.TB, method, u, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, u, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

func queryURL(addr, query string, params ...string) string {
	v := url.Values{"query": {query}}
	for i := 0; i < len(params); i += 2 {
		v.Set(params[i], params[i+1])
	}
	return "http://" + addr + "/?" + v.Encode()
}

func TestVersionByCurlAndByClient(t *testing.T) {
	start := time.Now()
	c := enginetest.Start(t, t.TempDir())
	t.Logf("ready after %s", time.Since(start).Round(time.Millisecond))
	got := do(t, "GET", "http://"+c.Addr()+"/?query=SELECT%20version()", "")
	if got.status != 200 || !strings.HasPrefix(got.body, "26.5.") || !strings.HasSuffix(got.body, "\n") {
		t.Errorf("got %+v", got)
	}
	if f := got.header.Get("X-ClickHouse-Format"); f != "TabSeparated" {
		t.Errorf("format %q", f)
	}
	if strings.TrimSpace(got.body) != c.Version() {
		t.Errorf("version %q, child says %q", got.body, c.Version())
	}
	v, err := dial(t, c.Addr()).ServerVersion()
	if err != nil || v.Version.Major != 26 {
		t.Errorf("server version %v, %v", v, err)
	}
	if p := do(t, "GET", "http://"+c.Addr()+"/ping", ""); p.body != "Ok.\n" {
		t.Errorf("ping: %+v", p)
	}
}

func TestTypesRoundTripByClient(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	for name, compression := range map[string]*clickhouse.Compression{
		"none": nil, "lz4": {Method: clickhouse.CompressionLZ4}, "zstd": {Method: clickhouse.CompressionZSTD},
		"gzip": {Method: clickhouse.CompressionGZIP, Level: 1}, "brotli": {Method: clickhouse.CompressionBrotli, Level: 1},
		"deflate": {Method: clickhouse.CompressionDeflate, Level: 1},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, c.Addr(), func(o *clickhouse.Options) {
				o.Compression = compression
				if compression != nil {
					o.Settings = clickhouse.Settings{"enable_http_compression": 1}
				}
			})
			typesRoundTrip(t, conn, "types_"+name)
		})
	}
}

type allTypes struct {
	S   string            `ch:"s"`
	FS  string            `ch:"fs"`
	U8  uint8             `ch:"u8"`
	U16 uint16            `ch:"u16"`
	U32 uint32            `ch:"u32"`
	U64 uint64            `ch:"u64"`
	I64 int64             `ch:"i64"`
	At  time.Time         `ch:"at"`
	LC  string            `ch:"lc"`
	LN  *string           `ch:"ln"`
	A   []string          `ch:"a"`
	AL  []string          `ch:"al"`
	E   string            `ch:"e"`
	ID  string            `ch:"id"`
	N   *uint32           `ch:"n"`
	M   map[string]uint64 `ch:"m"`
	SA  uint64            `ch:"sa"`
	B   bool              `ch:"b"`
	F   float64           `ch:"f"`
}

func typesRoundTrip(t *testing.T, conn driver.Conn, table string) {
	exec(t, conn, `CREATE TABLE `+table+` (s String, fs FixedString(4), u8 UInt8, u16 UInt16, u32 UInt32, u64 UInt64, i64 Int64,
		at DateTime64(6, 'UTC'), lc LowCardinality(String), ln LowCardinality(Nullable(String)), a Array(String), al Array(LowCardinality(String)),
		e Enum8('human' = 1, 'bot (x), y' = 2), id UUID, n Nullable(UInt32), m Map(String, UInt64), sa SimpleAggregateFunction(sum, UInt64),
		b Bool, f Float64) ENGINE = MergeTree ORDER BY u64`)
	ctx := context.Background()
	batch, err := conn.PrepareBatch(ctx, "INSERT INTO "+table)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 1000
	for i := range uint64(rows) {
		row := makeRow(i)
		if err := batch.AppendStruct(&row); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	got, err := conn.Query(ctx, "SELECT * FROM "+table+" ORDER BY u64")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Close() }()
	n := uint64(0)
	for ; got.Next(); n++ {
		var row allTypes
		if err := got.ScanStruct(&row); err != nil {
			t.Fatal(err)
		}
		if want := makeRow(n); fmt.Sprintf("%+v", deref(row)) != fmt.Sprintf("%+v", deref(want)) {
			t.Fatalf("row %d:\ngot  %+v\nwant %+v", n, deref(row), deref(want))
		}
	}
	if err := got.Err(); err != nil || n != rows {
		t.Fatalf("%d rows, %v", n, err)
	}
}

func makeRow(i uint64) allTypes {
	text := fmt.Sprintf("row %d\n\n; '\\ \x00 ü", i)
	row := allTypes{S: text, FS: "ab\x00\n", U8: uint8(i), U16: uint16(i), U32: uint32(i), U64: i, I64: -int64(i),
		At: time.Date(2026, 5, 4, 3, 2, 1, int(i)*1000, time.UTC), LC: fmt.Sprint("lc", i%7), A: []string{}, AL: []string{},
		E: "human", ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), M: map[string]uint64{"k": i}, SA: i, B: i%2 == 0, F: float64(i) / 3}
	if i%3 != 0 {
		v, s := uint32(i), fmt.Sprint("ln", i%5)
		row.N, row.LN, row.A, row.AL, row.E = &v, &s, []string{text, ""}, []string{"x", s, "x"}, "bot (x), y"
	}
	return row
}

func deref(r allTypes) any {
	n, ln := "nil", "nil"
	if r.N != nil {
		n = fmt.Sprint(*r.N)
	}
	if r.LN != nil {
		ln = *r.LN
	}
	r.N, r.LN = nil, nil
	return []any{r, n, ln}
}
