// Package units reads amounts. The same suffixes mean the same in all flags and
// files: memory is in powers of two, and 2G, 2Gi and 2GiB are the same; rates are
// in powers of ten.
package units

import (
	"fmt"
	"math"
	"strings"

	"github.com/docker/go-units"
)

// Memory reads a number of bytes, with k, M, G or T for powers of 1024.
func Memory(s string) (int64, error) {
	text := s
	if strings.HasSuffix(s, "i") {
		text += "B" // 2Gi
	}
	n, ok := amount(text, units.RAMInBytes)
	if !ok {
		return 0, fmt.Errorf("%q is no size; use bytes, or a number with k, M or G such as 512M or 512Mi, in powers of 1024",
			s)
	}
	return n, nil
}

// Decimal reads a number, with k, M, G or T for powers of 1000, behind which
// unit may be.
func Decimal(s, unit string) (n int64, ok bool) {
	text := strings.TrimSuffix(strings.ToLower(s), unit)
	if strings.ContainsAny(text, "ib") {
		return 0, false // not a suffix of bytes
	}
	return amount(text, units.FromHumanSize)
}

// amount is what read makes of digits and a suffix, without what else numbers
// in programs may have.
func amount(s string, read func(string) (int64, error)) (n int64, ok bool) {
	suffix := strings.TrimLeft(s, "0123456789.")
	if strings.ContainsAny(suffix, "0123456789. ") {
		return 0, false
	}
	n, err := read(s)
	return n, err == nil && n >= 0 && n < math.MaxInt64
}
