// Package certificates holds the TLS certificates of a directory, chosen by the name that a client asks for and read again when
// the files change.
//
// Invariant: a handshake never waits for the disk, and a file that became unreadable or does not fit its key never takes away
// a certificate that was served before.
//
// It must not import anything of this module.
package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ErrNone says that the directory holds no pair that can be used.
var ErrNone = errors.New("certificates: no NAME.crt with a NAME.key")

// lookEvery is how often the directory is looked at. Names are compared with times and sizes, which costs little.
const lookEvery = 2 * time.Second

// Store is the certificates of a directory: each NAME.crt (PEM: leaf first, then the chain) with its NAME.key.
type Store struct {
	dir    string
	logger *slog.Logger
	seen   string          // of the files, as last read
	pairs  map[string]pair // by NAME
	names  atomic.Pointer[names]
}

// pair is a certificate and its key.
type pair struct {
	certificate *tls.Certificate
	names       []string
}

// names finds a certificate by a name in lower case; "*.example.com" stands for one label. fallback is for clients that name
// nothing: the first by file name.
type names struct {
	by       map[string]*tls.Certificate
	fallback *tls.Certificate
}

// Open reads the directory, which must hold a pair that can be used. Run keeps it up to date.
func Open(dir string, logger *slog.Logger) (*Store, error) {
	s := &Store{dir: dir, logger: logger, pairs: map[string]pair{}}
	if err := s.look(); err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	if s.names.Load().fallback == nil {
		return nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	return s, nil
}

// Run looks for changes until ctx is done.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := s.look(); err != nil {
				s.logger.Error("certificates cannot be read, the last ones stay in use", "error", err)
			}
		}
	}
}

// TLS returns a configuration that serves these certificates, for HTTP/2 and HTTP/1.1. A client that asks for a name that no
// certificate is for gets the alert unrecognized_name (RFC 6066, section 3): any other certificate would only make a browser
// warn of an attack. A client that names nothing gets the first certificate by file name.
func (s *Store) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.get, NextProtos: []string{"h2", "http/1.1"}}
}

func (s *Store) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	names := s.names.Load()
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if name == "" {
		return names.fallback, nil
	}
	if c := names.by[name]; c != nil {
		return c, nil
	}
	if _, parent, found := strings.Cut(name, "."); found {
		if c := names.by["*."+parent]; c != nil {
			return c, nil
		}
	}
	return nil, nil // which crypto/tls, having no other certificate, answers with unrecognized_name
}

// look reads the directory again if anything in it changed.
func (s *Store) look() error {
	files, seen, err := s.list()
	if err != nil || seen == s.seen && s.names.Load() != nil {
		return err
	}
	pairs := map[string]pair{}
	for _, name := range files {
		p, err := s.load(name)
		if err != nil {
			s.logger.Error("a certificate cannot be used", "name", name, "error", err)
			p = s.pairs[name] // what was there before, if anything was
		}
		if p.certificate != nil {
			pairs[name] = p
		}
	}
	if len(pairs) == 0 && len(s.pairs) > 0 {
		return ErrNone // a directory that is being replaced: it is looked at again
	}
	s.seen, s.pairs = seen, pairs
	s.names.Store(index(pairs))
	s.logger.Info("certificates read", "pairs", len(pairs), "names", len(s.names.Load().by))
	return nil
}

// list returns the names of the pairs, and what tells whether any file changed.
func (s *Store) list() (files []string, seen string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, "", err
	}
	var all strings.Builder
	for _, entry := range entries {
		name, ext := strings.TrimSuffix(entry.Name(), filepath.Ext(entry.Name())), filepath.Ext(entry.Name())
		if ext != ".crt" && ext != ".key" {
			continue
		}
		info, err := os.Stat(filepath.Join(s.dir, entry.Name())) // of the file that a link leads to
		if err != nil {
			continue
		}
		fmt.Fprintln(&all, entry.Name(), info.Size(), info.ModTime().UnixNano())
		if ext == ".crt" {
			files = append(files, name)
		}
	}
	return files, all.String(), nil
}

func (s *Store) load(name string) (pair, error) {
	path := filepath.Join(s.dir, name)
	certificate, err := tls.LoadX509KeyPair(path+".crt", path+".key")
	if err != nil {
		return pair{}, err
	}
	if certificate.Leaf == nil {
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return pair{}, err
		}
	}
	return pair{certificate: &certificate, names: certificate.Leaf.DNSNames}, nil
}

// index orders the pairs by name. Of two certificates for one name, the one that lasts longer is served.
func index(pairs map[string]pair) *names {
	n := &names{by: map[string]*tls.Certificate{}}
	for _, file := range slices.Sorted(maps.Keys(pairs)) {
		p := pairs[file]
		if n.fallback == nil {
			n.fallback = p.certificate
		}
		for _, name := range p.names {
			name = strings.ToLower(name)
			if old := n.by[name]; old == nil || old.Leaf.NotAfter.Before(p.certificate.Leaf.NotAfter) {
				n.by[name] = p.certificate
			}
		}
	}
	return n
}
