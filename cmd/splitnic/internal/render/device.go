package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/splitdrv/device"
)

// printDevice prints the RDMA device: whether it is there, and what it has said.
func printDevice(w io.Writer, name string, s *device.Status) {
	fmt.Fprintf(w, "  device\t%s\n", name)
	if s == nil {
		return
	}
	if s.Gone {
		why := ""
		if s.Error != "" {
			why = "; " + s.Error
		}
		fmt.Fprintf(w, "  device GONE\tfor %v; it is opened again when it is back%s\n", ago(s.Since), why)
	}
	for _, port := range s.DownPorts {
		fmt.Fprintf(w, "  port %d\tDOWN\n", port)
	}
	var counts []string
	for _, key := range slices.Sorted(maps.Keys(s.Events)) {
		counts = append(counts, fmt.Sprintf("%d %s", s.Events[key], key))
	}
	if len(counts) > 0 {
		fmt.Fprintf(w, "  device events\t%s; the last %v ago: %s\n", strings.Join(counts, ", "), ago(s.LastTime), s.LastEvent)
	}
}
