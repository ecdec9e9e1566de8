package events

import "fmt"

// NoBucket stands in an Alarm for a bucket that could not be read.
const NoBucket = ^uint32(0)

// Alarm says that a log is not what it must be: it lost something, or holds what no writer of ours wrote. The reader that
// meets one stops; it never skips.
type Alarm struct {
	Topic     string
	Partition int32
	Offset    int64
	Bucket    uint32
	Reason    string
}

// Error names the place and the reason.
func (a *Alarm) Error() string {
	bucket := "?"
	if a.Bucket != NoBucket {
		bucket = fmt.Sprint(a.Bucket)
	}
	return fmt.Sprintf("log alarm: %s partition %d offset %d bucket %s: %s", a.Topic, a.Partition, a.Offset, bucket, a.Reason)
}
