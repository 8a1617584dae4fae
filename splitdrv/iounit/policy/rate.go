package policy

import (
	"fmt"

	"github.com/splitnic/splitnic/internal/units"
)

// MinRate and MaxRate are the limits of a rate in bits per second. At less than MinRate, a
// single frame would take seconds. Besides, a lower number was probably meant to have a suffix
// such as k, M or G.
const (
	MinRate = 100_000
	MaxRate = 1_000_000_000_000
)

// MinPPS and MaxPPS are the limits of a number of packets per second. At less than MinPPS, a
// super-frame would take seconds.
const (
	MinPPS = 100
	MaxPPS = 1_000_000_000
)

// parseRate parses a number of bits per second with an optional suffix k, M, G or T for powers
// of 1000, in either case. As in tc(8), "bit" may follow the suffix. The number may have a
// decimal point. The result is from MinRate to MaxRate.
func parseRate(s string) (int64, error) {
	n, ok := units.Decimal(s, "bit")
	switch {
	case !ok:
		return 0, fmt.Errorf("%q is no rate; use bits per second with k, M or G such as 500M or 2.5G", s)
	case n < MinRate || n > MaxRate:
		return 0, fmt.Errorf("%q is no rate from 100k to 1T bits per second; use k, M or G such as 500M or 2.5G", s)
	}
	return n, nil
}

// parsePPS parses a number of packets per second with an optional suffix k, M or G for powers
// of 1000, in either case. The number may have a decimal point. The result is from MinPPS to
// MaxPPS.
func parsePPS(s string) (int64, error) {
	n, ok := units.Decimal(s, "")
	if !ok || n < MinPPS || n > MaxPPS {
		return 0, fmt.Errorf("%q is no number of packets per second from 100 to 1G; use k or M such as 50k or 1.5M", s)
	}
	return n, nil
}
