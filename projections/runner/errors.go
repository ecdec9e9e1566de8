package runner

import (
	"errors"
	"fmt"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrStopped: the runner met something it must not skip. The cause is wrapped too: errors.As finds the *events.Alarm
	// or the *Poison.
	ErrStopped = errors.New("projection stopped")
	// ErrOtherStore: the store was made by another projection, or from another topic.
	ErrOtherStore = errors.New("store belongs to another projection")
	// ErrDamaged: what the store says of its positions cannot be read.
	ErrDamaged = errors.New("stored positions are damaged")
	// ErrForeignStream: the position is of a stream that this runner does not read.
	ErrForeignStream = errors.New("position is of another stream")
)

// Poison says which event a projection could not fold. The position stays before it.
type Poison struct {
	Projection string
	Topic      string
	Partition  int32
	Offset     int64
	Bucket     uint32
	Seq        uint64
	Cause      error
}

func (p *Poison) Error() string {
	return fmt.Sprintf("poison event for %s: %s partition %d offset %d bucket %d seq %d: %v",
		p.Projection, p.Topic, p.Partition, p.Offset, p.Bucket, p.Seq, p.Cause)
}

func (p *Poison) Unwrap() error { return p.Cause }
