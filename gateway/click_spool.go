package gateway

import (
	"errors"
	"fmt"

	"github.com/hoplog/hoplog/gateway/spool"
)

// clickFound is what the start of the spool was like.
type clickFound struct {
	left    uint64 // clicks of earlier processes
	damaged uint64 // clicks that were claimed by segments that are not whole
	failure error  // why there is no file
}

// clickSpoolPage: the segments of a spool are whole pages, and one more page is its head.
const clickSpoolPage = 4096

// clickSegmentBytes is what a segment needs so that a block is full before it has no room for another click.
func clickSegmentBytes(block int) int {
	const header = 64
	return (block + clickMaxBytes + header + clickSpoolPage - 1) / clickSpoolPage * clickSpoolPage
}

// openSpool opens the file, or memory where there is none.
func (r *ClickRecorder) openSpool() (left *spool.Left, err error) {
	config := spool.Config{Path: r.config.Spool, SegmentBytes: clickSegmentBytes(r.config.BlockBytes)}
	least := int64(clickSpoolPage + (r.config.Partitions+1)*config.SegmentBytes)
	config.Bytes = max(r.config.MaxBytes, least)
	r.spool, left, err = spool.Open(config)
	if err != nil && config.Path != "" {
		r.logger.Error("no spool for clicks: they wait in memory, and kill -9 loses those that the log does not have", "error", err)
		r.found.failure = err
		r.config.Spool, config.Path, config.Bytes = "", "", max(min(config.Bytes, clickMaxMemory), least)
		r.spool, left, err = spool.Open(config)
	}
	if err != nil {
		return nil, fmt.Errorf("opening click spool: %w", err)
	}
	for _, block := range left.Segments {
		r.found.left += block.Records()
	}
	r.found.damaged = left.Lost
	if left.Damaged > 0 {
		r.logger.Error("blocks of clicks are damaged, as after a power cut, and are lost", "blocks", left.Damaged, "clicks", left.Lost)
	}
	if r.found.left > 0 {
		r.logger.Info("sending the clicks that an earlier process left", "blocks", len(left.Segments), "clicks", r.found.left)
	}
	return left, nil
}

// closeSpool ends the recorder after its senders. late says why they were ended early.
func (r *ClickRecorder) closeSpool(late error) (err error) {
	waiting := r.Status().Waiting
	r.unmap.Do(func() { err = errors.Join(r.spool.Sync(), r.spool.Close()) })
	switch {
	case waiting == 0 || late == nil:
	case r.config.Spool != "":
		r.logger.Warn("clicks wait in the spool for the next start", "clicks", waiting, "spool", r.config.Spool)
	default:
		err = errors.Join(err, fmt.Errorf("sending the last clicks: %d not acknowledged: %w", waiting, late))
	}
	return err
}

// ClickStatus is what a recorder has done so far, in clicks unless named otherwise. Taken + Left = Sent + Dropped + Waiting.
type ClickStatus struct {
	Taken        uint64 `json:"taken"` // took a sequence, dropped ones included
	Left         uint64 `json:"left"`  // found in the spool at the start: of earlier processes
	Sent         uint64 `json:"sent"`  // acknowledged by the log
	Dropped      uint64 `json:"dropped"`
	Damaged      uint64 `json:"damaged"`               // found in the spool at the start, unreadable: lost
	Waiting      uint64 `json:"waiting"`               // in open blocks and in blocks not acknowledged
	Blocks       uint64 `json:"blocks"`                // acknowledged
	WaitingBytes int    `json:"waiting_bytes"`         // of the spool that is not free
	SpoolBytes   int    `json:"spool_bytes"`           // of the spool in all
	SpoolError   string `json:"spool_error,omitempty"` // why the spool is not the file that was asked for
	LastError    string `json:"last_error,omitempty"`  // of the last append that failed, empty when the one after it succeeded
	Durable      bool   `json:"durable"`               // they wait in a file
	Durability   string `json:"durability"`            // what the end of this process would lose
}

// What is not safe yet, with and without a file.
const (
	clickInFile   = "clicks wait in a mapped file until the log has them: kill -9 of this node loses none, a power cut may lose the last seconds"
	clickInMemory = "clicks wait in memory until the log has them: kill -9 of this node loses those"
)

// Status may be called at any time.
func (r *ClickRecorder) Status() ClickStatus {
	s := ClickStatus{Left: r.found.left, Damaged: r.found.damaged, WaitingBytes: r.spool.Used(), SpoolBytes: r.spool.Bytes(), Durability: clickInMemory}
	if r.config.Spool != "" {
		s.Durable, s.Durability = true, clickInFile
	}
	if r.found.failure != nil {
		s.SpoolError = r.found.failure.Error()
	}
	for i := range r.partitions {
		r.partitions[i].addTo(&s)
	}
	return s
}
