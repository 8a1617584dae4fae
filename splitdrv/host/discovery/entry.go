package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// scheme begins an entry that is the name of SRV records.
const scheme = "srv:"

// maxName is the longest name in text (RFC 1035 section 2.3.4), without a dot at its end.
const maxName = 253

var errName = errors.New("must be labels of 1 to 63 letters, digits, '-' and '_', with dots between them, " +
	"such as srv:_splitnic._tcp.fabric.example")

// ByDNS returns the name of the SRV records that an entry of a list of I/O units names; not
// ok if the entry is an address, as srv:7580 is, the one of a machine with that name.
func ByDNS(entry string) (name string, ok bool) {
	if len(entry) < len(scheme) || !strings.EqualFold(entry[:len(scheme)], scheme) {
		return "", false
	}
	name = entry[len(scheme):]
	return name, name == "" || strings.Trim(name, "0123456789") != ""
}

// Several reports whether a list of I/O units may have more than one.
func Several(entries []string) bool {
	if len(entries) != 1 {
		return len(entries) > 1
	}
	_, ok := ByDNS(entries[0])
	return ok
}

// Named reports whether DNS names any of a list of I/O units.
func Named(entries []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		_, ok := ByDNS(entry)
		return ok
	})
}

// Check refuses an entry with a name that cannot be asked for. It leaves addresses alone.
func Check(entry string) error {
	name, ok := ByDNS(entry)
	if ok && !validName(strings.TrimSuffix(name, ".")) {
		return fmt.Errorf("%q is not a DNS name: %w", entry, errName)
	}
	return nil
}

// validName reports whether a name can be that of a host or of SRV records, without escapes.
func validName(name string) bool {
	if len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			letter, digit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z', r >= '0' && r <= '9'
			return !letter && !digit && r != '-' && r != '_'
		}) {
			return false
		}
	}
	return true
}
