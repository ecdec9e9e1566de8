package eventlog

import (
	"errors"
	"fmt"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrForeignOffset: the append was acknowledged, but a record landed elsewhere than expected, because somebody else
	// wrote to the partition. errors.As finds a *ForeignOffsetError.
	ErrForeignOffset = errors.New("record landed at a foreign offset")
	// ErrUnknownOutcome: time ran out or the connection was lost after records may have been sent. They may be in the
	// log, may still arrive, or may never.
	ErrUnknownOutcome = errors.New("append outcome unknown")
	// ErrAppenderDead: an earlier append of this appender failed; open a new one.
	ErrAppenderDead = errors.New("appender is dead after a failed append")
	// ErrNotSent: the broker is too slow or away; the record waited in vain or found no room to wait. Nothing was written.
	ErrNotSent = errors.New("append not sent")
	// ErrTooLarge: a record is larger than its topic takes. It was not written.
	ErrTooLarge = errors.New("record is too large for its topic")
	// ErrOutOfRange: the log does not hold the wanted offset. errors.As finds a *OutOfRangeError.
	ErrOutOfRange = errors.New("offset out of range")
	// ErrTopicSettings: a topic exists with settings other than the wanted ones. errors.As finds a *TopicSettingsError.
	ErrTopicSettings = errors.New("topic has other settings than wanted")
	// ErrNoTopic: the topic does not exist.
	ErrNoTopic = errors.New("topic does not exist")
	// ErrLocked: another process uses the embedded broker's directory.
	ErrLocked = errors.New("directory is in use by another hoplog")
	// ErrClosed: the object was closed.
	ErrClosed = errors.New("closed")
)

// ForeignOffsetError says which record of an append landed where.
type ForeignOffsetError struct {
	Topic     string
	Partition int32
	Index     int   // of the record within the append
	Want, Got int64 // offsets
}

func (e *ForeignOffsetError) Error() string {
	return fmt.Sprintf("%v: topic %s partition %d record %d: want offset %d, got %d",
		ErrForeignOffset, e.Topic, e.Partition, e.Index, e.Want, e.Got)
}

func (e *ForeignOffsetError) Unwrap() error { return ErrForeignOffset }

// OutOfRangeError says which offset was wanted and what the log holds. Start and End are -1 when they could not be asked.
type OutOfRangeError struct {
	Topic      string
	Partition  int32
	Want       int64 // the position that was to be read
	Start, End int64 // the log holds [Start, End)
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("%v: topic %s partition %d: want offset %d, log holds [%d, %d)",
		ErrOutOfRange, e.Topic, e.Partition, e.Want, e.Start, e.End)
}

func (e *OutOfRangeError) Unwrap() error { return ErrOutOfRange }

// TopicSettingsError names one setting of one topic that differs.
type TopicSettingsError struct {
	Topic, Setting, Want, Found string
}

func (e *TopicSettingsError) Error() string {
	return fmt.Sprintf("%v: topic %s: setting %s: wanted %s, found %s",
		ErrTopicSettings, e.Topic, e.Setting, e.Want, e.Found)
}

func (e *TopicSettingsError) Unwrap() error { return ErrTopicSettings }
