package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/hoplog/hoplog/readmodels/clicks/engine/enginetest"
)

func TestErrorsKeepTheirCodes(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	for query, want := range map[string]struct {
		code   int32
		status int
	}{
		"SELECT * FROM nowhere":               {60, 404},
		"SELECT nothing":                      {47, 404},
		"SELEC 1":                             {62, 400},
		"nonsense":                            {62, 400},
		"SELECT * FROM file('/etc/hostname')": {497, 403},
		"SELECT * FROM url('http://127.0.0.1:1/')":                       {497, 403},
		"INSERT INTO FUNCTION file('/tmp/x', 'TSV', 'a UInt8') SELECT 1": {497, 403},
	} {
		err := conn.Exec(context.Background(), query)
		var ex *clickhouse.Exception
		var httpErr *clickhouse.HTTPError
		if !errors.As(err, &ex) || ex.Code != want.code {
			t.Errorf("%s: got %v, want code %d", query, err, want.code)
		}
		if !errors.As(err, &httpErr) || httpErr.StatusCode != want.status {
			t.Errorf("%s: got %v, want status %d", query, err, want.status)
		}
	}
}

func TestPlainHTTP(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	at := "http://" + c.Addr()
	do(t, "POST", at+"/", "CREATE TABLE lines (a UInt64, s String) ENGINE = MergeTree ORDER BY a")
	u := func(query string, params ...string) string { return queryURL(c.Addr(), query, params...) }
	for name, tc := range map[string]struct {
		got    answer
		status int
		code   string
		body   string
	}{
		"no query":          {do(t, "GET", at+"/", ""), 200, "", "Ok.\n"},
		"blank query":       {do(t, "POST", at+"/", " -- nothing\n"), 200, "", "Ok.\n"},
		"other path":        {do(t, "GET", at+"/x", ""), 404, "36", ""},
		"other method":      {do(t, "DELETE", at+"/", ""), 405, "36", ""},
		"query in body":     {do(t, "POST", at+"/", "SELECT 1, 'a\tb'"), 200, "", "1\ta\\tb\n"},
		"query in both":     {do(t, "POST", u("SELECT"), "2"), 200, "", "2\n"},
		"format clause":     {do(t, "GET", u("SELECT 1 AS x FORMAT JSONEachRow"), ""), 200, "", `{"x":1}` + "\n"},
		"format, settings":  {do(t, "GET", u("SELECT 1 AS x FORMAT CSV SETTINGS max_threads = 1;"), ""), 200, "", "1\n"},
		"default_format":    {do(t, "GET", u("SELECT 'x'", "default_format", "CSV"), ""), 200, "", "\"x\"\n"},
		"format header":     {do(t, "GET", u("SELECT 'x'"), "", "X-ClickHouse-Format", "CSV"), 200, "", "\"x\"\n"},
		"revision 0 native": {do(t, "GET", u("SELECT toUInt8(7) AS x FORMAT Native"), ""), 200, "", "\x01\x01\x01x\x05UInt8\x07"},
		"revision 54460":    {do(t, "GET", u("SELECT toUInt8(7) AS x FORMAT Native", "client_protocol_version", "54460"), ""), 200, "", "\x01\x00\x02\xff\xff\xff\xff\x00\x01\x01\x01x\x05UInt8\x00\x07"},
		"parameter":         {do(t, "GET", u("SELECT {x:String}, {n:UInt8}", "param_x", `it's "\\" {`, "param_n", "3"), ""), 200, "", `it\'s "\\" {` + "\t3\n"},
		"setting":           {do(t, "GET", u("SELECT value FROM system.settings WHERE name = 'max_threads'", "max_threads", "1"), ""), 200, "", "1\n"},
		"setting, quoted":   {do(t, "GET", u("SELECT getSetting('log_comment')", "log_comment", `a', max_threads = '7\`), ""), 200, "", `a\', max_threads = \'7\\` + "\n"},
		"setting, name":     {do(t, "GET", u("SELECT 1", "max_threads = 1, readonly", "0"), ""), 400, "36", ""},
		"setting, unknown":  {do(t, "GET", u("SELECT 1", "no_such_setting", "0"), ""), 404, "115", ""},
		"database":          {do(t, "GET", u("SELECT count() > 50 FROM tables", "database", "system"), ""), 200, "", "1\n"},
		"database, unknown": {do(t, "GET", u("SELECT 1", "database", "x`; SELECT 1"), ""), 404, "81", ""},
		"GET writes":        {do(t, "GET", u("INSERT INTO lines VALUES (1, 'a')"), ""), 500, "164", ""},
		"two statements":    {do(t, "POST", u("SELECT 1; SELECT 2"), ""), 400, "62", ""},
		"infile":            {do(t, "POST", u("INSERT INTO lines FROM INFILE '/etc/passwd' FORMAT TSV"), ""), 404, "78", ""},
		"outfile":           {do(t, "POST", u("SELECT 1 INTO/**/OUTFILE '/tmp/hoplog-no'"), ""), 404, "78", ""},
		"session":           {do(t, "POST", u("SELECT 1", "session_id", "x"), ""), 501, "48", ""},
		"page of another":   {do(t, "POST", u("SELECT 1"), "", "Origin", "https://example.com"), 403, "497", ""},
		"rebound name":      {do(t, "POST", u("SELECT 1"), "", "Host", "evil.example:80"), 403, "497", ""},
		"localhost":         {do(t, "POST", u("SELECT 1"), "", "Host", "localhost:80"), 200, "", "1\n"},
		"other user":        {do(t, "POST", u("SELECT 1"), "", "X-ClickHouse-User", "root"), 403, "516", ""},
		"states":            {do(t, "GET", u("SELECT uniqState(1) FORMAT Native", "client_protocol_version", "54460"), ""), 501, "48", ""},
		"insert, lines":     {do(t, "POST", u("INSERT INTO lines FORMAT TSV"), "1\ta\n2\tb; -- \\n\\n\n"), 200, "", ""},
		"insert, in body":   {do(t, "POST", at+"/", "INSERT INTO lines (s, a) SETTINGS max_threads = 1 VALUES ('x\n\n;', 1+1), (upper('v'), 4);"), 200, "", ""},
		"insert, json":      {do(t, "POST", u("INSERT INTO lines FORMAT JSONEachRow"), "{\"a\":5,\"s\":\"\"}\n\n\n{\"a\":6}"), 200, "", ""},
		"insert, select":    {do(t, "POST", u("INSERT INTO lines SELECT number, '' FROM numbers(2)"), ""), 200, "", ""},
		"insert, bad data":  {do(t, "POST", u("INSERT INTO lines FORMAT TSV"), "x\ta\n"), 400, "27", ""},
	} {
		if tc.got.status != tc.status || tc.got.header.Get("X-ClickHouse-Exception-Code") != tc.code ||
			tc.code == "" && tc.got.body != tc.body {
			t.Errorf("%s: got %d, code %q, %q; want %d, code %q, %q", name, tc.got.status,
				tc.got.header.Get("X-ClickHouse-Exception-Code"), tc.got.body, tc.status, tc.code, tc.body)
		}
	}
	if got := do(t, "GET", u("SELECT count() FROM lines"), ""); got.body != "8\n" {
		t.Errorf("rows: %q", got.body)
	}
	if got := do(t, "GET", u("SELECT getSetting('max_threads') = 1"), ""); got.body != "0\n" {
		t.Errorf("a setting outlived its request")
	}
}

// A Native block begins with its number of columns; 9, 10, 12, 13 and 32 are blanks to an SQL parser.
func TestNumberOfColumnsIsNotABlank(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	for _, columns := range []int{9, 10, 11, 12, 13, 32, 59} {
		table := fmt.Sprint("wide", columns)
		var defs []string
		row := make([]any, columns)
		for i := range columns {
			defs = append(defs, fmt.Sprintf("c%d UInt8", i))
			row[i] = uint8(1)
		}
		exec(t, conn, "CREATE TABLE "+table+" ("+strings.Join(defs, ", ")+") ENGINE = MergeTree ORDER BY c0")
		batch, err := conn.PrepareBatch(context.Background(), "INSERT INTO "+table)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(batch.Append(row...), batch.Append(row...), batch.Send()); err != nil {
			t.Errorf("%d columns: %v", columns, err)
		}
		if n := count(t, conn, fmt.Sprintf("SELECT sum(c%d) FROM %s", columns-1, table)); n != 2 {
			t.Errorf("%d columns: sum %d", columns, n)
		}
	}
}

func TestRetriedInsertCountsOnce(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	for _, ddl := range []string{
		`CREATE DATABASE clicks`,
		`CREATE TABLE clicks.raw (link UInt64, at DateTime64(6, 'UTC'), visitor UInt64) ENGINE = MergeTree PARTITION BY toYYYYMM(at)
			ORDER BY (link, at) SETTINGS non_replicated_deduplication_window = 1000`,
		`CREATE TABLE clicks.minute (link UInt64, start DateTime('UTC'), clicks UInt64, visitors AggregateFunction(uniq, UInt64))
			ENGINE = SummingMergeTree ORDER BY (link, start) SETTINGS non_replicated_deduplication_window = 1000`,
		`CREATE MATERIALIZED VIEW clicks.minute_mv TO clicks.minute AS SELECT link, toStartOfMinute(at) AS start, count() AS clicks,
			uniqState(visitor) AS visitors FROM clicks.raw GROUP BY link, start`,
		`CREATE TABLE clicks.day (link UInt64, start Date, clicks UInt64) ENGINE = SummingMergeTree ORDER BY (link, start)
			SETTINGS non_replicated_deduplication_window = 1000`,
		`CREATE MATERIALIZED VIEW clicks.day_mv TO clicks.day AS SELECT link, toDate(at, 'UTC') AS start, count() AS clicks
			FROM clicks.raw GROUP BY link, start`,
	} {
		exec(t, conn, ddl)
	}
	insert := func(token string, rows int) {
		t.Helper()
		ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{
			"insert_deduplication_token": token, "deduplicate_blocks_in_dependent_materialized_views": 1,
			"insert_deduplicate": 1, "async_insert": 0,
		}))
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO clicks.raw (link, at, visitor)")
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if err := batch.Append(uint64(i%3), time.Date(2026, time.Month(4+i%2), 30, 23, 59, i%60, 0, time.UTC), uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := batch.Send(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want uint64) {
		t.Helper()
		for _, q := range []string{"SELECT count() FROM clicks.raw", "SELECT sum(clicks) FROM clicks.minute", "SELECT sum(clicks) FROM clicks.day"} {
			if n := count(t, conn, q); n != want {
				t.Errorf("%s: %d, want %d", q, n, want)
			}
		}
	}
	insert("p0:1-1000", 1000)
	check(1000)
	insert("p0:1-1000", 1000)
	check(1000)
	insert("p0:1001-2000", 1000) // the same rows under another token are other rows
	check(2000)
	insert("p0:1-1000", 1000)
	check(2000)
	if n := count(t, conn, "SELECT uniqMerge(visitors) FROM clicks.minute"); n != 1000 {
		t.Errorf("visitors: %d", n)
	}
}

func TestLongResultsAreStreamedAndFailInBand(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	rows, err := conn.Query(context.Background(), "SELECT number, toString(number) FROM numbers(1000000)")
	if err != nil {
		t.Fatal(err)
	}
	var n, last, total uint64
	var s string
	for rows.Next() {
		if err := rows.Scan(&last, &s); err != nil {
			t.Fatal(err)
		}
		n++
		total += last
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || n != 1000000 || total != 499999500000 {
		t.Errorf("%d rows, sum %d, %v", n, total, err)
	}
	rows, err = conn.Query(context.Background(), "SELECT number, throwIf(number = 700000, 'as asked') FROM numbers(1000000)")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
	}
	var ex *clickhouse.Exception
	if !errors.As(rows.Err(), &ex) || ex.Code != 395 || !strings.Contains(ex.Message, "as asked") {
		t.Errorf("got %v", rows.Err())
	}
	_ = rows.Close()
}

func TestAbandonedReadIsKilled(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	const long = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := conn.QueryRow(ctx, long).Err(); err == nil {
		t.Fatal("no error")
	}
	eventually(t, "the query ends", func() bool {
		return count(t, conn, "SELECT count() FROM system.processes WHERE query LIKE '%sipHash64%' AND query NOT LIKE '%processes%'") == 0
	})
	ctx = clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"max_execution_time": 1}))
	err := conn.QueryRow(ctx, long).Err()
	var ex *clickhouse.Exception
	if !errors.As(err, &ex) || ex.Code != 159 {
		t.Errorf("got %v, want TIMEOUT_EXCEEDED", err)
	}
}

func TestQueriesRunSideBySide(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	start := time.Now()
	done := make(chan answer)
	for range 8 {
		go func() { done <- do(t, "GET", queryURL(c.Addr(), "SELECT sleep(1)"), "") }()
	}
	for range 8 {
		if got := <-done; got.body != "0\n" {
			t.Errorf("%+v", got)
		}
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("8 sleeps of 1 s took %s", d)
	}
}

func TestCredentialsAndLimits(t *testing.T) {
	o := enginetest.Options(t, t.TempDir())
	o.User, o.Password, o.MaxBody, o.MemoryLimit = "hop", "secret word", 1<<20, 1<<30
	c := enginetest.StartWith(t, o)
	u := queryURL(c.Addr(), "SELECT 1")
	for name, tc := range map[string]struct {
		header []string
		url    string
		want   int
	}{
		"none":       {nil, u, 403},
		"wrong":      {[]string{"X-ClickHouse-User", "hop", "X-ClickHouse-Key", "secret"}, u, 403},
		"headers":    {[]string{"X-ClickHouse-User", "hop", "X-ClickHouse-Key", "secret word"}, u, 200},
		"basic":      {[]string{"Authorization", "Basic aG9wOnNlY3JldCB3b3Jk"}, u, 200},
		"parameters": {nil, u + "&user=hop&password=secret+word", 200},
	} {
		got := do(t, "GET", tc.url, "", tc.header...)
		if got.status != tc.want || strings.Contains(got.body, "secret") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	conn := dial(t, c.Addr(), func(o *clickhouse.Options) { o.Auth = clickhouse.Auth{Username: "hop", Password: "secret word"} })
	if err := conn.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	login := []string{"X-ClickHouse-User", "hop", "X-ClickHouse-Key", "secret word"}
	if got := do(t, "POST", u, strings.Repeat(" ", 1<<20+1), login...); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("large body: %d", got.status)
	}
	got := do(t, "POST", queryURL(c.Addr(), "SELECT groupArray(number) FROM numbers(1000000000) FORMAT Null"), "", login...)
	if got.status != 500 || got.header.Get("X-ClickHouse-Exception-Code") != "241" {
		t.Errorf("memory limit: %+v", got)
	}
}

func TestCutInsertChangesNothing(t *testing.T) {
	c := enginetest.Start(t, t.TempDir())
	conn := dial(t, c.Addr())
	exec(t, conn, "CREATE TABLE cut (a UInt64) ENGINE = MergeTree ORDER BY a")
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, "1\n2\n")
		_ = pw.CloseWithError(errors.New("client dies"))
	}()
	req, err := http.NewRequest(http.MethodPost, queryURL(c.Addr(), "INSERT INTO cut FORMAT TSV"), pr)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Error("the insert was answered")
	}
	time.Sleep(100 * time.Millisecond)
	if n := count(t, conn, "SELECT count() FROM cut"); n != 0 {
		t.Errorf("%d rows of a request that was cut", n)
	}
}
