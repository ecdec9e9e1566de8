package runner

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Memory is a Store that lives as long as its process. What is folded into it is folded again at every start.
type Memory struct {
	mu    sync.RWMutex
	pairs map[string][]byte
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{pairs: map[string][]byte{}} }

// Get implements Store.
func (m *Memory) Get(dst, key []byte) ([]byte, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	value, ok := m.pairs[string(key)]
	return append(dst, value...), ok, nil
}

// Scan implements Store.
func (m *Memory) Scan(prefix []byte, f func(key, value []byte) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var keys []string
	for key := range m.pairs {
		if strings.HasPrefix(key, string(prefix)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := f([]byte(key), m.pairs[key]); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements Store.
func (m *Memory) Commit(writes []*Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		for key, value := range w.All() {
			if value == nil {
				delete(m.pairs, string(key))
			} else {
				m.pairs[string(key)] = bytes.Clone(value)
			}
		}
	}
	return nil
}
