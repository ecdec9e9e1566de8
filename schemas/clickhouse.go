package schemas

import "embed"

// ClickHouse holds the migrations of the clicks database, clickhouse/NNNN_name.sql: statements that each end with a
// semicolon at the end of a line, without a database name, and that may be repeated.
//
//go:embed clickhouse/*.sql
var ClickHouse embed.FS
