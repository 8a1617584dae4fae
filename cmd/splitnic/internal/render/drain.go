package render

import (
	"fmt"
	"io"

	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// Drain prints the hosts that are left on an I/O unit that drains.
func Drain(w io.Writer, name string, s *iounit.DrainStatus) error {
	_, err := fmt.Fprintf(w, "%s: takes no hosts; %d left\n", name, len(s.Remaining))
	for _, line := range Remaining(s) {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s\n", line)
		}
	}
	return err
}

// Remaining returns a line for each host that is left.
func Remaining(s *iounit.DrainStatus) (lines []string) {
	for i := range s.Remaining {
		h := &s.Remaining[i]
		line := h.Name
		if h.Stays != "" {
			line += " stays: " + h.Stays
		}
		lines = append(lines, line)
	}
	return lines
}

// stays returns the number of remaining hosts that have said why they stay.
func stays(s *iounit.DrainStatus) (n int) {
	for i := range s.Remaining {
		if s.Remaining[i].Stays != "" {
			n++
		}
	}
	return n
}
