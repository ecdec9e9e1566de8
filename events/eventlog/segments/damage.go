package segments

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ErrDamaged says that the files hold something that no crash leaves behind. errors.As finds the first *Damage.
var ErrDamaged = errors.New("the log's files are damaged")

// Damage is one thing that is wrong with the broker's files.
type Damage struct {
	Topic     string // "": a file of the broker itself
	Partition int32
	File      string // path
	Byte      int64  // position in the file, -1: it is about the whole file
	Offset    int64  // of the first record that cannot be trusted, -1: none
	What      string
}

func (d *Damage) Error() string {
	var b strings.Builder
	if d.Topic != "" {
		fmt.Fprintf(&b, "%s partition %d: ", d.Topic, d.Partition)
	}
	b.WriteString(d.File)
	if d.Byte >= 0 {
		fmt.Fprintf(&b, " byte %d", d.Byte)
	}
	if d.Offset >= 0 {
		fmt.Fprintf(&b, " offset %d", d.Offset)
	}
	return b.String() + ": " + d.What
}

// refusal is the error of a start that damage forbids.
func refusal(dir string, damages []*Damage) error {
	all := make([]error, 0, len(damages)+2)
	for _, d := range damages {
		all = append(all, d)
	}
	all = append(all, fmt.Errorf("nothing was changed: the files in %s lie as they were found. Keep a copy of that directory, then put back the "+
		"files named above from a backup that is not older than the last acknowledged write. Without one: README, \"When damage is found\"", filepath.Clean(dir)))
	return fmt.Errorf("%w: %w", ErrDamaged, errors.Join(all...))
}
