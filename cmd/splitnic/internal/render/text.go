package render

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ago returns the time since t. It is not negative, even if the clock was set back.
func ago(t time.Time) time.Duration { return max(time.Since(t), 0).Round(time.Second) }

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// duration formats d as kubectl does, in the two largest units. d may be negative if the clock was
// set back.
func duration(d time.Duration) string {
	d = max(d, 0)
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return inUnits(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return inUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return inUnits(d, day, "d", time.Hour, "h")
}

// inUnits formats d in two units, or only in the larger one if the rest is 0.
func inUnits(d, large time.Duration, l string, small time.Duration, s string) string {
	text := fmt.Sprintf("%d%s", d/large, l)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}

func rates(bits, packets int64) string {
	if packets == 0 {
		return rate(bits)
	}
	return rate(bits) + " and " + Counted(packets, "packet") + "/s"
}

// rate formats a rate limit in bits per second. Limits of a policy are at least 100,000.
func rate(bits int64) string {
	n, unit := float64(bits)/1e3, "kbit"
	switch {
	case bits == 0:
		return "unlimited"
	case bits >= 1e9:
		n, unit = float64(bits)/1e9, "Gbit"
	case bits >= 1e6:
		n, unit = float64(bits)/1e6, "Mbit"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + unit
}

// Counted returns n and the noun, in the plural unless n is 1.
func Counted[N ~int | ~int64 | ~uint64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "ch"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
