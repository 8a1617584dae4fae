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

// maxAge is the largest age of an answer kept by a previous process. Later, another machine
// may have the address.
const maxAge = 7 * 24 * time.Hour

// rekeep is the age of a file after which the same answer is written again.
const rekeep = time.Hour

// maxKept is the largest size of a file in bytes. The part of an answer that Order uses is
// far smaller.
const maxKept = 1 << 20

// keptVersion is the version of the file format.
const keptVersion = 1

// kept is an answer in a file. A file is trusted no more than DNS: it only says where to
// connect.
type kept struct {
	Version  int       `json:"version"`
	Name     string    `json:"name"`
	Answered time.Time `json:"answered"`
	Records  []Record  `json:"records"`
	// Addresses has the addresses at which targets were reached.
	Addresses map[string]netip.Addr `json:"addresses,omitempty"`
}

// shelf is the directory of the files; "": none.
type shelf string

func (s shelf) path(name string) string {
	return filepath.Join(string(s), strings.ToLower(strings.TrimSuffix(name, "."))+".json")
}

// put keeps an answer for the next process, unless a recent file has the same answer.
func (s shelf) put(name string, records []Record, addresses map[string]netip.Addr, now time.Time) error {
	if s == "" {
		return nil
	}
	if k, err := s.get(name, now); err == nil && sameRecords(k.Records, records) && maps.Equal(k.Addresses, addresses) {
		if age := now.Sub(k.Answered); age >= 0 && age < rekeep { // negative if a clock was ahead
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

// get returns the answer that was kept. The error is os.ErrNotExist if there is none, or if
// it is too old.
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
	case now.Sub(k.Answered) > maxAge, len(k.Records) == 0:
		return k, os.ErrNotExist
	}
	for _, r := range k.Records {
		if !validName(r.Target) || r.Port == 0 {
			return k, errors.New(path + ": a record names no host and port")
		}
	}
	return k, nil
}

// sameRecords reports whether two answers have the same records, in any order.
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
