package clicks

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
	client "github.com/ClickHouse/clickhouse-go/v2/lib/column"
)

// A column that was filled through a dictionary holds the values, and what it sends is read as them again.
func TestDictionary(t *testing.T) {
	for _, distinct := range []int{1, 2, 254, 255, 256, 300, 65_534, 65_535, 65_600} {
		d := newDictionary(0)
		var values []string
		for i := range 70_000 {
			value := fmt.Sprint("value ", i*7%distinct)
			if i%5 == 0 {
				value = ""
			}
			d.add(value)
			values = append(values, value)
		}
		filled, read := lowCardinalityColumn(t), lowCardinalityColumn(t)
		if err := d.appendTo(filled); err != nil {
			t.Fatal(err)
		}
		holds(t, filled, values)
		var sent proto.Buffer
		filled.Encode(&sent)
		if err := read.Decode(proto.NewReader(bytes.NewReader(sent.Buf)), len(values)); err != nil {
			t.Fatal(err)
		}
		holds(t, read, values)
	}
}

func holds(t *testing.T, c client.Interface, values []string) {
	t.Helper()
	if c.Rows() != len(values) {
		t.Fatalf("%d rows, want %d", c.Rows(), len(values))
	}
	for i, want := range values {
		if got := c.Row(i, false); got != want {
			t.Fatalf("row %d is %q, want %q", i, got, want)
		}
	}
}

func lowCardinalityColumn(t *testing.T) client.Interface {
	t.Helper()
	c, err := client.Type("LowCardinality(String)").Column("c", &client.ServerContext{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
