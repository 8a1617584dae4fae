package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize parses a number of bytes with an optional suffix: k, M, G or T for
// powers of 1024, which may be written Ki, KiB and so on.
func ParseSize(s string) (int64, error) {
	bad := fmt.Errorf("%q is no size; use bytes, or a number with k, M or G such as 512M", s)
	digits := strings.TrimRight(s, "kKMGTiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, bad
	}
	shift := 0
	switch strings.TrimSuffix(strings.TrimSuffix(s[len(digits):], "B"), "i") {
	case "":
		if strings.HasSuffix(s, "i") || strings.HasSuffix(s, "iB") {
			return 0, bad
		}
	case "k", "K":
		shift = 10
	case "M":
		shift = 20
	case "G":
		shift = 30
	case "T":
		shift = 40
	default:
		return 0, bad
	}
	if n > math.MaxInt64>>shift {
		return 0, bad
	}
	return n << shift, nil
}
