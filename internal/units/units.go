// Package units parses amounts with suffixes, the same for all flags and files, and formats them
// as it parses them. Amounts of memory use powers of two: 2G, 2Gi and 2GiB are the same. Rates use
// powers of ten.
package units

import (
	"fmt"
	"math"
	"strings"

	"github.com/docker/go-units"
)

// Memory parses a number of bytes. k, M, G and T are powers of 1024.
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

// Decimal parses a number. k, M, G and T are powers of 1000. The text may end in unit.
func Decimal(s, unit string) (n int64, ok bool) {
	text := strings.TrimSuffix(strings.ToLower(s), unit)
	if strings.ContainsAny(text, "ib") {
		return 0, false // not a suffix of bytes
	}
	return amount(text, units.FromHumanSize)
}

// amount parses digits and a suffix with read. It rejects other forms of numbers that read
// accepts.
func amount(s string, read func(string) (int64, error)) (n int64, ok bool) {
	suffix := strings.TrimLeft(s, "0123456789.")
	if strings.ContainsAny(suffix, "0123456789. ") {
		return 0, false
	}
	n, err := read(s)
	return n, err == nil && n >= 0 && n < math.MaxInt64
}

// Size formats a number of bytes as Memory parses it, with at most four digits: 9.523MiB.
func Size[N ~int | ~int64 | ~uint64](n N) string { return units.BytesSize(float64(n)) }

// AtLeast formats n as Size does, rounded up: Memory parses the text as n or a little more.
func AtLeast(n int64) string {
	for at := n; ; at += max(1, n/10000) {
		s := Size(at)
		if back, err := Memory(s); err != nil || back >= n {
			return s
		}
	}
}

// Short formats a number, such as a rate, with at most four digits in powers of 1000: 1.299k.
func Short(n float64) string {
	return units.CustomSize("%.4g%s", n, 1000, []string{"", "k", "M", "G", "T", "P", "E"})
}
