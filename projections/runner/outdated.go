package runner

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenPebbleOf opens or makes the store of a projection, whose name ends in a slash and its version. A store of another version
// is removed: it says nothing that the log does not say, and the new one is made from there.
func OpenPebbleOf(projection, dir string, o PebbleOptions) (*Pebble, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	outdated := dir + ".outdated"
	if err := o.FS.RemoveAll(outdated); err != nil { // of a process that ended while it removed one
		return nil, fmt.Errorf("removing an outdated store: %w", err)
	}
	p, err := OpenPebble(dir, o)
	if err != nil {
		return nil, err
	}
	found, err := p.projection()
	if err == nil && !otherVersion(projection, found) {
		return p, nil
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return nil, fmt.Errorf("asking what the store in %s is of: %w", dir, err)
	}
	if o.Logger != nil {
		o.Logger.Info("a store of another version is removed and made again from the log", "store", dir, "version", found, "needed", projection)
	}
	if err = o.FS.Rename(dir, outdated); err == nil { // what is half removed must not look like a damaged store
		err = o.FS.RemoveAll(outdated)
	}
	if err != nil {
		return nil, fmt.Errorf("removing an outdated store: %w", err)
	}
	return OpenPebble(dir, o)
}

// projection returns the name of the projection that made the store; empty if it is new.
func (p *Pebble) projection() (string, error) {
	text, _, err := p.Get(nil, metaKey)
	name, _, _ := strings.Cut(string(text), "\n")
	return name, err
}

// otherVersion reports whether two names are of the same projection, but not of the same version.
func otherVersion(want, found string) bool {
	return want != found && familyOf(want) == familyOf(found)
}

func familyOf(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }
