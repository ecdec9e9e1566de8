package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/projections/runner"
)

// Config is what a store on the disk needs. Dir holds the store and nothing else.
type Config struct {
	Dir    string
	Source runner.Source
	Pebble runner.PebbleOptions
	Logger *slog.Logger
	// Lean makes the state keep what those who only obey it need: see commands.LeanControl.
	Lean bool
}

// memTableBytes: the control log is small, and several of these stores may be on one machine.
const memTableBytes = 1 << 20

// prefix is the first byte of a kept envelope's key; its sequence follows.
const prefix = 'e'

// OpenOnDisk opens the store in a directory, or makes it, and folds what it holds. One that does not hold what it claims to is
// marked, and the error is a *disk.Damage: opened once more, it is set aside and begun anew.
func OpenOnDisk(cfg Config) (*Store, error) {
	cfg.Pebble.MemTableBytes = memTableBytes
	f := &fold{keep: true}
	if cfg.Lean {
		f.next = commands.LeanControl()
	}
	kept, err := runner.OpenPebbleOf(f.Name(), cfg.Dir, cfg.Pebble)
	if err != nil {
		return nil, err
	}
	s, err := open(cfg.Source, cfg.Logger, kept, f)
	if err == nil {
		s.kept = kept
		if err = s.recall(); err != nil && !disk.IsDamage(err) {
			err = disk.Condemn(cfg.Dir, cfg.Pebble.FS, err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return s, nil
}

// recall folds the kept envelopes. They must be one whole chain up to the position that the store says it is at.
func (s *Store) recall() error {
	var head events.Hash
	var seq uint64
	err := s.kept.Scan([]byte{prefix}, func(_, value []byte) error {
		e, err := events.DecodeEnvelope(bytes.Clone(value))
		if err != nil {
			return fmt.Errorf("the envelope after %d: %w", seq, err)
		}
		if e.GetSeq() != seq+1 || !bytes.Equal(e.GetPrevHash(), head[:]) {
			return fmt.Errorf("the envelope after %d does not continue the chain", seq)
		}
		head, seq = e.Hash, e.GetSeq()
		s.fold.next = commands.EvolveControl(s.fold.next, e.Envelope)
		return nil
	})
	if err != nil {
		return fmt.Errorf("folding the kept control log: %w", err)
	}
	if seq != s.Seq() {
		return fmt.Errorf("the kept control log ends at %d, its position is %d", seq, s.Seq())
	}
	if seq > 0 {
		s.fold.current.Store(s.fold.next)
	}
	return nil
}

// keepEnvelope adds an accepted envelope to a commit, byte for byte.
func keepEnvelope(w *runner.Write, a runner.Accepted) {
	w.Set(binary.BigEndian.AppendUint64([]byte{prefix}, a.GetSeq()), a.Value)
}

// MarkFresh writes down that the store holds all that the log had acknowledged at this instant; see runner.Pebble.MarkFresh. A
// store in memory forgets it.
func (s *Store) MarkFresh(at time.Time) error {
	if s.kept == nil {
		return nil
	}
	return s.kept.MarkFresh(at)
}

// FreshAt returns the newest instant that was marked; the zero time for a store in memory, and while this one never held all of
// the log.
func (s *Store) FreshAt() (time.Time, error) {
	if s.kept == nil {
		return time.Time{}, nil
	}
	return s.kept.FreshAt()
}

// Close ends the tail and closes the store. No run may be under way.
func (s *Store) Close() error {
	s.Runner.Close()
	if s.kept == nil {
		return nil
	}
	return s.kept.Close()
}
