package mint

import (
	"fmt"

	"github.com/hoplog/hoplog/events"
)

// DrawID draws the id of a link whose code is custom.
func (m *Minter) DrawID() (uint64, error) {
	if m.closed {
		return 0, ErrClosed
	}
	s := m.spaces[plainSpace]
	defer s.publish()
	ordinal, err := s.take()
	if err != nil {
		return 0, err
	}
	m.counts.drawn.Add(1)
	return plainSpace<<spaceShift | ordinal, nil
}

// Draw draws an id and the code that stands for it, one that routes to the bucket. Length 0 means the default; no code
// of more than MaxSequential characters stands for an id, so longer ones are random. The code may be taken: then draw
// again.
func (m *Minter) Draw(namespace string, length int, bucket uint32) (uint64, string, error) {
	length = orDefault(length, m.config.Length)
	if length > MaxSequential {
		return m.DrawRandom(namespace, length, bucket)
	}
	if length < MinLength {
		return 0, "", fmt.Errorf("%w: %d characters", ErrLength, length)
	}
	codes, err := m.permutation(length)
	if err != nil {
		return 0, "", err
	}
	s := m.spaces[length]
	defer s.publish()
	next := func() (candidate, error) {
		ordinal, err := s.take()
		if err != nil {
			return candidate{}, err
		}
		return candidate{ordinal, codes.Value(ordinal)}, nil
	}
	c, err := m.find(poolKey{namespace: namespace, length: length}, bucket, next)
	if err != nil {
		return 0, "", err
	}
	m.counts.drawn.Add(1)
	var code [MaxSequential]byte
	return uint64(length)<<spaceShift | c.ordinal, string(appendCode(code[:0], c.value, length)), nil
}

// DrawRandom draws an id and, independent of it, a random code that routes to the bucket. Length 0 means the default.
// The code may be taken: then draw again.
func (m *Minter) DrawRandom(namespace string, length int, bucket uint32) (uint64, string, error) {
	length = orDefault(length, m.config.RandomLength)
	if length < MinRandomLength || length > events.MaxCodeLength {
		return 0, "", fmt.Errorf("%w: %d random characters", ErrLength, length)
	}
	// What a long code has beyond the characters that are searched for the bucket is chosen first.
	searched := min(length, MaxSequential)
	var code [events.MaxCodeLength]byte
	prefix, err := m.random.appendCode(code[:0], length-searched)
	if err != nil {
		return 0, "", err
	}
	key := poolKey{namespace: namespace, length: length, random: true}
	next := func() (candidate, error) {
		value, err := m.random.below(powers[searched])
		return candidate{value: value}, err
	}
	var c candidate
	if len(prefix) > 0 {
		c, err = m.search(m.routePrefix(namespace, prefix), searched, bucket, nil, next)
	} else {
		c, err = m.find(key, bucket, next)
	}
	if err != nil {
		return 0, "", err
	}
	id, err := m.DrawID()
	if err != nil {
		return 0, "", err
	}
	return id, string(appendCode(prefix, c.value, searched)), nil
}

// find takes a candidate of the bucket from the key's pool, or searches one and fills the pool on the way.
func (m *Minter) find(key poolKey, bucket uint32, next func() (candidate, error)) (candidate, error) {
	p := m.pools.use(key)
	if p != nil && m.owns(bucket) && !m.closed {
		if c, ok := p.pop(bucket - m.first); ok {
			m.pools.held--
			m.counts.publish(m.pools)
			return c, nil
		}
	}
	return m.search(m.routePrefix(key.namespace, nil), key.length, bucket, p, next)
}

// search draws candidates until one routes to the bucket: about events.Buckets draws. Others of this partition's buckets
// go to the pool, if there is one with room; the rest is burnt.
func (m *Minter) search(prefix []byte, length int, bucket uint32, p *pool, next func() (candidate, error)) (candidate, error) {
	if m.closed {
		return candidate{}, ErrClosed
	}
	if !m.owns(bucket) {
		return candidate{}, fmt.Errorf("%w: %d", ErrForeignBucket, bucket)
	}
	burnt, overflow := uint64(0), uint64(0)
	defer func() {
		m.counts.burnt.Add(burnt)
		m.counts.overflow.Add(overflow)
		m.counts.publish(m.pools)
	}()
	for {
		c, err := next()
		if err != nil {
			return candidate{}, err
		}
		routed := events.BucketOfKey(appendCode(prefix, c.value, length))
		switch {
		case routed == bucket:
			return c, nil
		case p == nil || !m.owns(routed):
			burnt++
		case p.push(routed-m.first, c):
			m.pools.held++
		default:
			overflow++
		}
	}
}

func (m *Minter) owns(bucket uint32) bool { return bucket-m.first < m.buckets }

// routePrefix returns the route key up to where the searched characters begin, in scratch memory with room for them.
func (m *Minter) routePrefix(namespace string, prefix []byte) []byte {
	m.scratch = append(append(m.scratch[:0], namespace...), 0)
	m.scratch = append(m.scratch, prefix...)
	n := len(m.scratch)
	m.scratch = append(m.scratch, alphabet[:MaxSequential]...)
	return m.scratch[:n]
}
