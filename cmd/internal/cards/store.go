package cards

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Store is a directory with a file for each card, so that the next process has the same cards.
// A file is complete or does not exist, whenever the machine stops. Any goroutine may call the
// methods, but only one at a time for the same name.
type Store struct {
	dir  string
	boot string
	lock *os.File // the directory
}

// noted is the content of a file.
type noted struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"` // boot of the machine in which the card was made
	Spec    Spec   `json:"spec"`
	// Space is the network namespace of a transient card.
	Space space `json:"space,omitzero"`
}

const (
	storeVersion = 1
	cardSuffix   = ".json"
)

// bootFile has the identifier of this boot of the machine (random(4)).
const bootFile = "/proc/sys/kernel/random/boot_id"

// OpenStore opens the directory, and makes it if it does not exist. No other process can open the
// store until Close, or until this process ends. OpenStore fails if no card could be recorded in
// the directory.
func OpenStore(dir string) (*Store, error) {
	fail := func(err error) (*Store, error) {
		return nil, fmt.Errorf("state directory: %w; put it elsewhere with --state", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return nil, fmt.Errorf("state directory: which boot this is: %w", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return fail(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another agent uses %s: %w", dir, unix.EADDRINUSE)
		}
		return fail(err)
	}
	if err := checkWritable(dir); err != nil {
		lock.Close()
		return nil, fmt.Errorf("state directory: %s cannot be written to: %w; make it writable, or name another directory "+
			"with --state", dir, err)
	}
	return &Store{dir: dir, boot: string(bytes.TrimSpace(boot)), lock: lock}, nil
}

// probeFile is made and removed to check whether files can be made. No card has this file name.
const probeFile = ".probe"

// checkWritable makes a file in the directory. A full disk is no error: the recorded cards can be
// restored nevertheless, and there may be space again before the next card is made.
func checkWritable(dir string) error {
	path := filepath.Join(dir, probeFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(path))
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err // the caller names the directory
	}
	return err
}

// Close lets another process use the directory.
func (s *Store) Close() error { return s.lock.Close() }

func (s *Store) path(name string) string { return filepath.Join(s.dir, name+cardSuffix) }

// Put records a card. After it has returned, Load in a later process returns the card.
func (s *Store) Put(spec *Spec) error {
	in := spaceOf(spec)
	defer in.release()
	return s.put(spec, in)
}

// put is Put for a transient card in a network namespace, or nil if that is unknown.
func (s *Store) put(spec *Spec, in *heldSpace) error {
	n := noted{Version: storeVersion, Boot: s.boot, Spec: *spec}
	if in != nil {
		n.Space = in.space
	}
	text, err := json.MarshalIndent(n, "", "  ")
	if err == nil {
		err = renameio.WriteFile(s.path(spec.Name), append(text, '\n'), 0o600)
	}
	if err == nil {
		err = s.lock.Sync()
	}
	if err != nil {
		return fmt.Errorf("state of card %s: %w", spec.Name, err)
	}
	return nil
}

// Delete removes the record of a card. It is no error if there is none.
func (s *Store) Delete(name string) error {
	err := os.Remove(s.path(name))
	if err != nil {
		// The error cannot tell: on a read-only file system it is the same if there is no file.
		if _, there := os.Lstat(s.path(name)); errors.Is(there, fs.ErrNotExist) {
			return nil
		}
	}
	if err == nil {
		err = s.lock.Sync()
	}
	if err != nil {
		return fmt.Errorf("state of card %s: %w", name, err)
	}
	return nil
}

// Load reads all cards, and records that they are of this boot of the machine. errs has an error
// for each file that cannot be used. gone has the cards whose network namespace is gone, which the
// caller has to remove: the namespace ended with an earlier boot of the machine, or the card is
// transient and another namespace has the path now.
func (s *Store) Load() (specs, gone []Spec, errs []error) {
	all, gone, errs := s.load()
	for i := range all {
		specs = append(specs, all[i].Spec)
	}
	return specs, gone, errs
}

// load is Load with the whole records.
func (s *Store) load() (all []noted, gone []Spec, errs []error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, []error{fmt.Errorf("state directory: %w", err)}
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), cardSuffix)
		if !ok || !ValidName(name) {
			continue // not the file of a card, but for example a temporary file
		}
		n, err := s.read(name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case s.gone(&n):
			gone = append(gone, n.Spec)
		default:
			if n.Boot != s.boot {
				// The card now is of this boot. If its record stays as it was, the next process
				// decides again.
				_ = s.Put(&n.Spec)
			}
			all = append(all, n)
		}
	}
	return all, gone, errs
}

// gone reports whether the network namespace in which a card was made is gone.
func (s *Store) gone(n *noted) bool {
	if n.Boot != s.boot {
		return n.Spec.Transient || n.Spec.NetNS != "" && !exists(n.Spec.NetNS)
	}
	in := spaceOf(&n.Spec)
	defer in.release()
	return n.elsewhere(in)
}

// elsewhere reports whether a card was made in another network namespace than that at its path.
func (n *noted) elsewhere(in *heldSpace) bool {
	return n.Space != (space{}) && in != nil && !in.is(n.Space)
}

func (s *Store) read(name string) (noted, error) {
	text, err := os.ReadFile(s.path(name))
	var n noted
	if err == nil {
		n, err = parse(name, text)
	}
	if err != nil {
		return noted{}, &recordError{name, s.path(name), err}
	}
	return n, nil
}

// recordError is returned for the record of a card that cannot be used.
type recordError struct {
	name, path string
	err        error
}

func (e *recordError) Error() string {
	return fmt.Sprintf("state of card %s: %v; the card is left out: mend or remove %s", e.name, e.err, e.path)
}

func (e *recordError) Unwrap() error { return e.err }

// parse parses the content of the file of the card called name.
func parse(name string, text []byte) (n noted, err error) {
	if err = decode(text, &n); err != nil {
		return n, err
	}
	if n.Version != storeVersion {
		return n, fmt.Errorf("version %d is of another splitnic", n.Version)
	}
	if n.Spec, err = n.Spec.Complete(); err == nil && n.Spec.Name != name {
		err = &FieldError{"name", fmt.Sprintf("%q is another card", n.Spec.Name)}
	}
	return n, err
}

// decode decodes one JSON value that has no unknown fields.
func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one JSON value")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
