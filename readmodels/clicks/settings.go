package clicks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// insertSettings make an insert whole and repeatable. All of them are said with every insert, because defaults differ
// between versions (26.5 turns async_insert on) and profiles.
//
// One insert is one block from the client to the last aggregate: nothing cuts it, nothing joins it with others, so that a
// repeat meets the deduplication of each table with the block that the first try had.
var insertSettings = map[string]any{
	"async_insert":               0,
	"insert_deduplicate":         1,
	"max_insert_threads":         1,
	"max_insert_block_size":      maxBlock,
	"max_block_size":             maxBlock,
	"min_insert_block_size_rows": 0, "min_insert_block_size_bytes": 0,
	"min_insert_block_size_rows_for_materialized_views": 0, "min_insert_block_size_bytes_for_materialized_views": 0,
	"deduplicate_blocks_in_dependent_materialized_views": 1,
	// Beyond 100,000 keys an aggregation would come out in 256 blocks.
	"group_by_two_level_threshold": 0, "group_by_two_level_threshold_bytes": 0,
	"parallel_view_processing":         0,
	"materialized_views_ignore_errors": 0,
	// A spooled block may hold clicks of many months.
	"max_partitions_per_insert_block": 0,
}

// newSettings are said only to servers that know them.
var newSettings = map[string]any{
	"deduplicate_insert":          "enable",
	"max_insert_block_size_bytes": 0,
	"update_insert_deduplication_token_in_dependent_materialized_views": 0,
	"ignore_materialized_views_with_dropped_target_table":               0,
}

// maxBlock is more rows than any insert of ours has.
const maxBlock = 4 << 20

// learnSettings asks which settings the server knows.
func (s *Store) learnSettings(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(newSettings))
	for i, name := range names {
		names[i] = quote(name)
	}
	settings := maps.Clone(insertSettings)
	err := s.each(ctx, "asking for settings", "SELECT name FROM system.settings WHERE name IN ("+strings.Join(names, ", ")+")",
		func(row driver.Rows) error {
			var name string
			err := row.Scan(&name)
			settings[name] = newSettings[name]
			return err
		})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.settings = settings
	s.mu.Unlock()
	return nil
}

// inserting returns a context whose insert is deduplicated by the token.
func (s *Store) inserting(ctx context.Context, token string) (context.Context, error) {
	s.mu.Lock()
	known := s.settings
	s.mu.Unlock()
	if known == nil {
		return nil, fmt.Errorf("inserting clicks: %w: not prepared", ErrUnavailable)
	}
	settings := clickhouse.Settings(maps.Clone(known))
	settings["insert_deduplication_token"] = token
	return clickhouse.Context(ctx, clickhouse.WithSettings(settings), clickhouse.WithColumnNamesAndTypes(rawColumns)), nil
}
