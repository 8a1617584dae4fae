package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// MaxAge is how old an answer may be that a process before this one has kept. Whoever was at
// an address may have left it since.
const MaxAge = 7 * 24 * time.Hour

// rekeep is how old what is kept may be before the same answer is written again.
const rekeep = time.Hour

// maxKept bounds the size of a file, in bytes; what Order takes of an answer is far below.
const maxKept = 1 << 20

// keptVersion is that of the files.
const keptVersion = 1

// kept is an answer as it is on disk. Whoever can write to it says no more than DNS does:
// where to look.
type kept struct {
	Version  int       `json:"version"`
	Name     string    `json:"name"`
	Answered time.Time `json:"answered"`
	Records  []Record  `json:"records"`
	// Addresses are those by which targets were reached.
	Addresses map[string]netip.Addr `json:"addresses,omitempty"`
}

// shelf is the directory of the files; "" for none.
type shelf string

// path is the file about a name.
func (s shelf) path(name string) string {
	return filepath.Join(string(s), strings.ToLower(strings.TrimSuffix(name, "."))+".json")
}

// put keeps an answer for the next process, unless that is there and young.
func (s shelf) put(name string, records []Record, addresses map[string]netip.Addr, now time.Time) error {
	if s == "" {
		return nil
	}
	if k, err := s.get(name, now); err == nil && sameRecords(k.Records, records) && maps.Equal(k.Addresses, addresses) {
		if age := now.Sub(k.Answered); age >= 0 && age < rekeep { // a clock may have been ahead
			return nil
		}
	}
	text, err := json.MarshalIndent(kept{keptVersion, name, now.UTC().Truncate(time.Second), records, addresses}, "", "  ")
	if err == nil {
		err = os.MkdirAll(string(s), 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(s.path(name), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep what DNS has said: %w", err)
	}
	return nil
}

// get is the answer that was kept. The error is os.ErrNotExist if there is none, or it is too
// old.
func (s shelf) get(name string, now time.Time) (k kept, err error) {
	if s == "" {
		return k, os.ErrNotExist
	}
	path := s.path(name)
	f, err := os.Open(path)
	if err != nil {
		return k, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKept))
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	switch {
	case err != nil:
		return k, fmt.Errorf("%s: %w", path, err)
	case k.Version != keptVersion:
		return k, fmt.Errorf("%s: version %d", path, k.Version)
	case now.Sub(k.Answered) > MaxAge, len(k.Records) == 0:
		return k, os.ErrNotExist
	}
	for _, r := range k.Records {
		if !validName(r.Target) || r.Port == 0 {
			return k, errors.New(path + ": a record names no host and port")
		}
	}
	return k, nil
}

// sameRecords reports whether two answers have the same records, in whatever order.
func sameRecords(a, b []Record) bool {
	count := map[Record]int{}
	for _, r := range a {
		count[r]++
	}
	for _, r := range b {
		count[r]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
