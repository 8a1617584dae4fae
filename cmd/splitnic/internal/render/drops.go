package render

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// Dropped returns the number of a host's frames that were dropped for any reason, except for frames
// that its receive filter or VLANs exclude.
func Dropped(h *iounit.HostStatus) (n uint64) {
	counts := h.Counts()
	for i, c := range iounit.HostCounters() {
		if isDrop(c) && c.Part != "filtered" {
			n += counts[i]
		}
	}
	return n
}

func isDrop(c counter.Counter) bool { return strings.HasPrefix(c.Help, "dropped: ") }

// dropped returns the numbers of dropped frames in one direction, with the reasons.
func dropped(h *iounit.HostStatus, direction string) string {
	var all []string
	counts := h.Counts()
	for i, c := range iounit.HostCounters() {
		if c.Direction == direction && isDrop(c) && counts[i] > 0 {
			all = append(all, fmt.Sprintf("%d %s", counts[i], strings.ReplaceAll(c.Part, "_", " ")))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}
