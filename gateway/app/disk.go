package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/events/disk"
)

// dataDisk is what this process knows of the disk under its data directory.
type dataDisk struct {
	dir   string
	guard *disk.Guard

	mu     sync.Mutex
	stores []*disk.Damage
	found  uint64                   // damages since the start
	mends  uint64                   // stores that were made again while this process ran
	heard  map[string]chan struct{} // by store: who makes it again
}

// storesOf says which stores a role answers from.
var storesOf = map[string][]string{roleCommands: {"commands"}, roleAPI: {"links", "control"}, roleRedirect: {"redirects", "control"}, roleEffects: {"effects", "control"}}

// watchDisk begins to watch that there is room.
func (n *node) watchDisk(context.Context) error {
	guard, err := disk.NewGuard(n.dir(""), n.GetUint64("disk-reserve")<<20, n.logger)
	if err != nil {
		return err
	}
	if err := guard.Full(); errors.Is(err, disk.ErrReadOnly) {
		return fmt.Errorf("%w: mount it for writing, or choose another directory with --data", err)
	} // on a full disk redirects can be served all the same: the reserve is enough to open what there is
	n.disk = &dataDisk{dir: n.dir(""), guard: guard, heard: map[string]chan struct{}{}}
	n.work("disk watch", func(ctx context.Context) error { guard.Run(ctx); return nil })
	n.health.trouble = n.disk.trouble
	n.disk.register(n.registry)
	return nil
}

// register shows the disk as metrics.
func (d *dataDisk) register(registry *prometheus.Registry) {
	gauge := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("hoplog_disk_free_bytes", "Bytes that are free under the data directory.", func() float64 { return float64(d.guard.Free()) })
	gauge("hoplog_disk_reserve_bytes", "Bytes that are kept free: below it writes are refused.", func() float64 { return float64(d.guard.Reserve()) })
	gauge("hoplog_disk_refusing", "1 while writes are refused, because the disk is full or read-only.", func() float64 { return truth(d.guard.Full() != nil) })
	gauge("hoplog_stores_damaged", "Stores that are known to be damaged now.", d.locked(func() float64 { return float64(len(d.stores)) }))
	count := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, d.locked(value)))
	}
	count("hoplog_store_damages_total", "Damages of stores that were found since the start.", func() float64 { return float64(d.found) })
	count("hoplog_store_repairs_total", "Damaged stores that were made again from the log while they were served.", func() float64 { return float64(d.mends) })
}

// commitsWait says why projections do not commit now. A process that stops commits all the same, for the reserve is enough.
func (n *node) commitsWait() error {
	if n.health.isDraining() {
		return nil
	}
	return n.disk.guard.Full()
}

// listsRoom is what is left of the reserve for the control state when everything else waits for room: it is a few hundred bytes
// a change, and a denial must hold on a full disk too.
const listsRoom = 4 << 20

// listsWait is commitsWait for the control state.
func (n *node) listsWait() error {
	full := n.commitsWait()
	if full != nil && !errors.Is(full, disk.ErrReadOnly) && n.disk.guard.Free() > listsRoom {
		return nil
	}
	return full
}

func (d *dataDisk) locked(value func() float64) func() float64 {
	return func() float64 {
		d.mu.Lock()
		defer d.mu.Unlock()
		return value()
	}
}

// damaged remembers a store that was found to be damaged, and tells who makes it again.
func (d *dataDisk) damaged(found *disk.Damage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stores = append(d.stores, found)
	d.found++
	if c := d.heard[d.storeOf(found)]; c != nil {
		notify(c)
	}
}

// storeOf returns the name of a damaged store, empty if it is none of this directory.
func (d *dataDisk) storeOf(found *disk.Damage) string {
	inside, err := filepath.Rel(d.dir, found.Dir)
	if err != nil {
		return ""
	}
	store, _, _ := strings.Cut(inside, string(filepath.Separator))
	return store
}

// hurt returns what is told of a store's damage from now on, and of damage that is known already.
func (d *dataDisk) hurt(store string) chan struct{} {
	c := make(chan struct{}, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard[store] = c
	for _, found := range d.stores {
		if d.storeOf(found) == store {
			notify(c)
		}
	}
	return c
}

// repaired forgets the damage of a store that was made again.
func (d *dataDisk) repaired(dir string) {
	d.mended(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mends++
}

// trouble is what the disk means for a role. A redirect node goes on with what it can read.
func (d *dataDisk) trouble(role string) roleHealth {
	if found := d.damageOf(role); found != nil {
		if role == roleRedirect {
			return degraded(found.Error())
		}
		return notReady(found.Error())
	}
	if full := d.guard.Full(); full != nil {
		return degraded(full.Error())
	}
	return ready
}

func (d *dataDisk) damageOf(role string) *disk.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, found := range d.stores {
		if slices.Contains(storesOf[role], d.storeOf(found)) {
			return found
		}
	}
	return nil
}

func (d *dataDisk) isDamaged(store string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.stores, func(found *disk.Damage) bool { return d.storeOf(found) == store })
}

// removeOutdated removes a store of an earlier binary whose questions another store answers now.
func (n *node) removeOutdated(store, answers string) error {
	if _, err := os.Stat(n.dir(store)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(n.dir(store)); err != nil {
		return fmt.Errorf("removing an outdated store: %w", err)
	}
	n.logger.Info("a store of an earlier version is removed: another answers what it did", "store", n.dir(store), "answers", n.dir(answers))
	return nil
}

// openStore opens what reads a store at once. If the store turns out to be damaged, a second try sets it aside.
func openStore[T any](n *node, store string, open func() (T, error)) (T, error) {
	opened, err := open()
	if err == nil || !disk.IsDamage(err) {
		return opened, err
	}
	n.disk.mended(n.dir(store))
	return open()
}

// mended forgets the damage of a store that is about to be set aside.
func (d *dataDisk) mended(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stores = slices.DeleteFunc(d.stores, func(found *disk.Damage) bool {
		return found.Dir == dir || strings.HasPrefix(found.Dir, dir+string(filepath.Separator))
	})
}
