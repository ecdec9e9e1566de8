package clicks

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hoplog/hoplog/schemas"
)

// migration is one numbered file of schemas/clickhouse.
type migration struct {
	version    uint32
	name       string
	statements []string
}

const migrationsTable = `CREATE TABLE IF NOT EXISTS schema_migrations
(version UInt32, name String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC'))
ENGINE = MergeTree ORDER BY version`

// Prepare makes the database and its tables, or brings them up to date. Every statement may be repeated, so several
// processes may do it at once and one that died half-way is followed by the next. ErrNewerSchema when a newer program was
// here before.
func (s *Store) Prepare(ctx context.Context) error {
	files, err := migrations(schemas.ClickHouse)
	if err != nil {
		return err
	}
	if s.current(ctx, files) {
		return nil
	}
	if err := s.createDatabase(ctx); err != nil {
		return err
	}
	if err := s.exec(ctx, "making the table of migrations", migrationsTable); err != nil {
		return err
	}
	if err := s.migrate(ctx, files); err != nil {
		return err
	}
	return s.learnSettings(ctx)
}

// current reports whether the tables are known to be as they must. When in doubt it says no.
func (s *Store) current(ctx context.Context, files []migration) bool {
	s.mu.Lock()
	known := s.settings != nil
	s.mu.Unlock()
	if !known {
		return false
	}
	applied, err := s.applied(ctx)
	return err == nil && applied[files[len(files)-1].version] && len(applied) == len(files)
}

// createDatabase asks before it makes: a user may be allowed to use a database and not to make one.
func (s *Store) createDatabase(ctx context.Context) error {
	o, err := s.cfg.options("default")
	if err != nil {
		return err
	}
	conn, err := clickhouse.Open(o)
	if err != nil {
		return fmt.Errorf("making clickhouse client: %w", err)
	}
	defer conn.Close()
	var there uint64
	if err := conn.QueryRow(ctx, "SELECT count() FROM system.databases WHERE name = "+quote(s.cfg.Database)).Scan(&there); err != nil {
		return unavailable("looking for the database", err)
	}
	if there > 0 {
		return nil
	}
	if err := conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS `"+strings.ReplaceAll(s.cfg.Database, "`", "``")+"`"); err != nil {
		return unavailable("making the database", err)
	}
	return nil
}

func (s *Store) applied(ctx context.Context) (map[uint32]bool, error) {
	applied := map[uint32]bool{}
	err := s.each(ctx, "reading the migrations", "SELECT version FROM schema_migrations", func(row driver.Rows) error {
		var version uint32
		err := row.Scan(&version)
		applied[version] = true
		return err
	})
	return applied, err
}

func (s *Store) migrate(ctx context.Context, files []migration) error {
	applied, err := s.applied(ctx)
	if err != nil {
		return err
	}
	for version := range applied {
		if newest := files[len(files)-1].version; version > newest {
			return fmt.Errorf("%w: it has migration %d, this program knows %d", ErrNewerSchema, version, newest)
		}
	}
	for _, m := range files {
		if applied[m.version] {
			continue
		}
		for i, statement := range m.statements {
			if err := s.conn.Exec(ctx, statement); err != nil {
				return unavailable(fmt.Sprintf("applying migration %s, statement %d", m.name, i+1), err)
			}
		}
		if err := s.exec(ctx, "noting migration "+m.name, "INSERT INTO schema_migrations (version, name) VALUES (%d, %s)", m.version, quote(m.name)); err != nil {
			return err
		}
		s.logger.Info("clickhouse migration applied", "name", m.name)
	}
	return nil
}

var (
	migrationName  = regexp.MustCompile(`^(\d{4})_[a-z0-9_]+$`)
	endOfStatement = regexp.MustCompile(`;[ \t]*(\n|$)`)
)

// migrations reads the embedded files, which must be numbered 0001, 0002 and so on.
func migrations(from fs.FS) ([]migration, error) {
	names, err := fs.Glob(from, "clickhouse/*.sql") // in lexical order
	if err != nil {
		return nil, fmt.Errorf("listing migrations: %w", err)
	}
	var out []migration
	for i, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".sql")
		parts := migrationName.FindStringSubmatch(name)
		if len(parts) != 2 || parts[1] != fmt.Sprintf("%04d", i+1) {
			return nil, fmt.Errorf("migration %s is not number %d", file, i+1)
		}
		version, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", file, err)
		}
		text, err := fs.ReadFile(from, file)
		if err != nil {
			return nil, fmt.Errorf("reading migration: %w", err)
		}
		out = append(out, migration{uint32(version), name, statements(string(text))})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no migrations are embedded")
	}
	return out, nil
}

func statements(text string) (out []string) {
	for _, s := range endOfStatement.Split(text, -1) {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// quote makes a string literal of a name of ours.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
