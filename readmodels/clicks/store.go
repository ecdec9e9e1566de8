package clicks

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Store is a handle on the clicks database. Safe for concurrent use.
type Store struct {
	cfg    Config
	logger *slog.Logger
	conn   driver.Conn

	mu       sync.Mutex
	settings map[string]any // of an insert; nil until Prepare has asked which of them the server knows
}

// Open checks the configuration. It sends nothing: ClickHouse may be down.
func Open(cfg Config, logger *slog.Logger) (*Store, error) {
	cfg = cfg.withDefaults()
	o, err := cfg.options(cfg.Database)
	if err != nil {
		return nil, err
	}
	conn, err := clickhouse.Open(o)
	if err != nil {
		return nil, fmt.Errorf("making clickhouse client: %w", err)
	}
	return &Store{cfg: cfg, logger: logger, conn: conn}, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("closing clickhouse client: %w", err)
	}
	return nil
}

// Ping asks ClickHouse for a sign of life and its version.
func (s *Store) Ping(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return "", unavailable("asking clickhouse for its version", err)
	}
	return version, nil
}

// exec runs a statement without a result. Only numbers and names of ours are formatted into statements, never what a
// stranger sent.
func (s *Store) exec(ctx context.Context, doing, format string, args ...any) error {
	if err := s.conn.Exec(ctx, fmt.Sprintf(format, args...)); err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// each runs a question and calls scan for every row.
func (s *Store) each(ctx context.Context, doing, query string, scan func(row driver.Rows) error) error {
	rows, err := s.conn.Query(ctx, query)
	if err != nil {
		return unavailable(doing, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return unavailable(doing, err)
		}
	}
	if err := rows.Err(); err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// microseconds formats a time for comparison with a DateTime64(6) column.
func microseconds(t time.Time) string {
	return fmt.Sprintf("fromUnixTimestamp64Micro(toInt64(%d), 'UTC')", t.UnixMicro())
}
