package clicks

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Many inserts leave few parts, of every table that they reach: what makes merges rarer must not let parts pile up.
func TestPartsStayFew(t *testing.T) {
	long(t)
	const inserts, few = 120, 40
	s := newStore(t)
	n := newNode(t, nil, "n1")
	most := uint64(0)
	for i := range inserts {
		b := batchOf(t, int32(i%2), int64(i), n.block(int32(i%2), uint64(i%7), every(noon, time.Second, 20)...))
		if err := s.Insert(context.Background(), b, fmt.Sprint("token ", i)); err != nil {
			t.Fatal(err)
		}
		if err := s.Report(context.Background(), b.Partition, b.To, noon); err != nil {
			t.Fatal(err)
		}
		most = max(most, s.mostParts(t))
	}
	t.Logf("at most %d parts of a table during %d inserts", most, inserts)
	if most >= inserts/2 {
		t.Errorf("%d parts of a table during %d inserts: merges do not keep up", most, inserts)
	}
	await(t, fmt.Sprintf("at most %d parts of each table", few), func() bool { return s.mostParts(t) <= few })
	if got := s.tables(t); got != same(inserts*20) {
		t.Errorf("tables hold %+v after their merges, want %d everywhere", got, inserts*20)
	}
}

// mostParts is the number of living parts of the table that has most.
func (s *Store) mostParts(t *testing.T) (most uint64) {
	t.Helper()
	const query = "SELECT max(parts) FROM (SELECT count() AS parts FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table)"
	if err := s.conn.QueryRow(context.Background(), query).Scan(&most); err != nil {
		t.Fatal(err)
	}
	return most
}
