package owners

import (
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections/runner"
)

// Config is what a store needs. Dir holds the store and nothing else.
type Config struct {
	Dir    string
	Source runner.Source
	Pebble runner.PebbleOptions
}

// Store is the owners read model and the runner that feeds it.
type Store struct {
	*runner.Runner
	pebble *runner.Pebble
}

// Open opens the store in a directory, or makes it. It is fed while Run runs.
func Open(cfg Config) (*Store, error) {
	pebbles, err := runner.OpenPebble(cfg.Dir, cfg.Pebble)
	if err != nil {
		return nil, err
	}
	run, err := runner.New(runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: cfg.Source,
		Store: pebbles, Projection: &projection{}, Logger: cfg.Pebble.Logger})
	if err != nil {
		return nil, errors.Join(err, pebbles.Close())
	}
	return &Store{run, pebbles}, nil
}

// Close ends the tail and closes the store. Nobody may be reading, and no run be under way.
func (s *Store) Close() error {
	s.Runner.Close()
	return s.pebble.Close()
}

// TagCount is a tag with how many of an owner's links have it, tombstones not counted.
type TagCount struct {
	Tag   string
	Links int64
}

// Tags returns the tags that an owner uses, in byte order.
func (s *Store) Tags(owner string) (tags []TagCount, err error) {
	prefix := appendOwner(nil, countPrefix, owner)
	err = s.pebble.Scan(prefix, func(key, value []byte) error {
		n, err := decodeCount(value)
		tags = append(tags, TagCount{string(key[len(prefix):]), n})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading tags: %w", err)
	}
	return tags, nil
}
