// Package engine runs an embedded ClickHouse: the real engine as a shared library (libchdb.so), loaded without cgo
// by a child process that serves ClickHouse's HTTP protocol on loopback. clickhouse-go, curl and everything else
// that speaks to a ClickHouse server by HTTP speaks to it in the same way.
//
// The parent uses [Find], [Start] and [Child]; the child process calls [Main] (or [ServeChild]), which ends in [Serve].
// Why a child: the library owns process-wide state (signal handlers, threads, one data directory for life) and a crash
// in it must not take the redirects with it.
//
// Invariants: one engine per data directory (file lock); the child dies with its parent, even when that is killed; an
// INSERT that was answered 200 is in its table; no request's settings, database or parameters are seen by another (each
// request has a session of its own); a client cannot reach files or the network through SQL.
//
// Differences from a server, all refused with an error and never silently ignored: no sessions (session_id), no external
// tables (multipart bodies), no INFILE/OUTFILE, no aggregate states or JSON columns in Native results. The
// query_id of a request is echoed, not given to the query.
//
// It must not import any other package of this module.
package engine
