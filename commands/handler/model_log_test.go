package handler

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

const (
	modelBuckets = 3
	// maxBatch and maxCommands bound what a state has room for; nonces have four bits, of which the last is for the end.
	maxBatch    = 3
	maxCommands = 6
	lastNonce   = 15
)

// intern numbers values by content.
type intern[T comparable] struct {
	list    []T
	numbers map[T]int32
}

func (t *intern[T]) number(value T) int32 {
	n, ok := t.numbers[value]
	if !ok {
		n = int32(len(t.list))
		t.list, t.numbers[value] = append(t.list, value), n
	}
	return n
}

// modelEnvelope is a real record of the events topic, decoded once.
type modelEnvelope struct {
	record           eventlog.Record
	hash, prev       events.Hash
	bucket, cmd, low int8
	seq, nonce       int8
	follows          int32 // the envelope that prev is the hash of; -1: none
	name, answer     string
	sight            string // what it says it was decided on
	plain            bool   // sight is what follows from the envelopes before it: nothing to tell apart by
}

// node is a log, or what a writer folded: its last record and the node before it.
type node struct {
	before, env int32
	length      int8
	class       uint64 // the log but for what is drawn
	nonces      [maxCommands]uint16
}

// catalog holds all envelopes and logs of a search by content.
type catalog struct {
	envs     []modelEnvelope
	byValue  map[string]int32
	byHash   map[events.Hash]int32
	nodes    []node
	children map[[2]int32]int32
	buf      []byte
}

func newCatalog() *catalog {
	return &catalog{byValue: map[string]int32{}, byHash: map[events.Hash]int32{{}: -1}, nodes: []node{{before: -1, env: -1}},
		children: map[[2]int32]int32{}}
}

// envelopeName is c3, c3′, c3′′, ...: the first, second, third envelope that somebody made for command 3; c3* is made by
// the writer that ends every history.
func envelopeName(offset int64, nonce uint32) string { return envelopeNames[offset][nonce] }

var envelopeNames = func() (names [maxCommands][lastNonce + 1]string) {
	for c := range names {
		for nonce := range names[c] {
			names[c][nonce] = fmt.Sprint("c", c, strings.Repeat("′", nonce))
		}
		names[c][lastNonce] = fmt.Sprint("c", c, "*")
	}
	return names
}()

func (c *catalog) add(r eventlog.Record) int32 {
	if known, ok := c.byValue[string(r.Value)]; ok {
		return known
	}
	e, err := events.DecodeEnvelope(r.Value)
	if err != nil {
		panic(err)
	}
	m := modelEnvelope{record: eventlog.Record{Key: r.Key, Value: r.Value}, hash: e.Hash, prev: events.Hash(e.GetPrevHash()), bucket: int8(e.GetBucket()), cmd: int8(e.GetCommandOffset()),
		low: int8(e.GetLowWatermark()), seq: int8(e.GetSeq()), nonce: int8(e.GetStamp().GetCandidateId()), answer: e.GetOutcome().GetCode(), sight: e.GetOutcome().GetDetail()}
	m.name = envelopeName(e.GetCommandOffset(), uint32(m.nonce))
	follows, known := c.byHash[m.prev]
	if !known {
		panic("an envelope follows what was never made")
	}
	m.follows = follows
	if m.plain = m.sight == ""; follows >= 0 {
		before := c.envs[follows]
		m.plain = before.plain && m.sight == strings.TrimLeft(before.sight+" "+before.name, " ")
	}
	number := int32(len(c.envs))
	c.envs, c.byValue[string(r.Value)], c.byHash[m.hash] = append(c.envs, m), number, number
	return number
}

func (c *catalog) child(of, env int32) int32 {
	key := [2]int32{of, env}
	if known, ok := c.children[key]; ok {
		return known
	}
	before := c.nodes[of]
	n := node{before: of, env: env, length: before.length + 1, nonces: before.nonces}
	n.nonces[c.envs[env].cmd] |= 1 << c.envs[env].nonce
	n.class = xxhash.Sum64(c.classify(of, env))
	number := int32(len(c.nodes))
	c.nodes, c.children[key] = append(c.nodes, n), number
	return number
}

// path returns the envelopes of a node, first to last.
func (c *catalog) path(at int32) []int32 {
	list := make([]int32, c.nodes[at].length)
	for i := len(list) - 1; i >= 0; i-- {
		list[i], at = c.nodes[at].env, c.nodes[at].before
	}
	return list
}

// offset returns where an envelope stands in a log, -1 if it is not there.
func (c *catalog) offset(log, env int32) int8 {
	for ; log > 0; log = c.nodes[log].before {
		if c.nodes[log].env == env {
			return c.nodes[log].length - 1
		}
	}
	return -1
}

// classify is what tells a log from others, given the one before its last record: all but what was drawn.
func (c *catalog) classify(of, env int32) []byte {
	buf := binary.LittleEndian.AppendUint64(c.buf[:0], c.nodes[of].class)
	c.buf = c.encode(buf, of, env, nil)
	return c.buf
}

// encode is an envelope but for what was drawn: the one it follows is named by where it stands, in the log or among the
// envelopes sent with it.
func (c *catalog) encode(buf []byte, log, env int32, with []int32) []byte {
	e := &c.envs[env]
	buf = append(buf, byte(e.cmd), byte(e.seq), byte(e.low))
	if at := c.offset(log, e.follows); e.follows < 0 || at >= 0 {
		buf = append(buf, byte(at+1))
	} else if at := slices.Index(with, e.follows); at >= 0 {
		buf = append(buf, byte(64+at))
	} else {
		buf = binary.LittleEndian.AppendUint32(append(buf, 255), uint32(e.follows))
	}
	if !e.plain {
		buf = binary.LittleEndian.AppendUint32(append(buf, 255), uint32(env))
	}
	return buf
}
