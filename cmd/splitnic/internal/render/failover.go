package render

import (
	"fmt"
	"io"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// printFailovers prints the state of the standby session, and the fail-overs if there were any.
func printFailovers(w io.Writer, indent string, s *uplink.FailoverStatus) {
	if s.Standby != "" {
		fmt.Fprintf(w, "%son standby\t%s\n", indent, s.Standby)
	}
	if s.NoStandby != "" {
		fmt.Fprintf(w, "%sno standby\t%s\n", indent, s.NoStandby)
	}
	if s.Last == nil {
		return
	}
	printCounts(w, "fail-overs", s.Count)
	fmt.Fprintf(w, "%sreconnected\t%s with the same I/O unit\n", indent, Counted(s.Reconnects, "time"))
	fmt.Fprintf(w, "%sframes then\t%d carried over, %d uncertain, %d lost\n", indent, s.Carried, s.Uncertain, s.Lost)
	fmt.Fprintf(w, "%slast fail-over\t%v ago, %s\n", indent, ago(s.Last.At), Failover(s.Last))
}

// Failover describes a fail-over in one line.
func Failover(f *uplink.Failover) string {
	return fmt.Sprintf("%s → %s (%s): took %v, no frames for %v; %s carried over, %d uncertain, %d lost",
		f.From, f.To, f.Reason, f.Took.Round(100*time.Microsecond), f.Gap.Round(100*time.Microsecond),
		Counted(f.Carried, "frame"), f.Uncertain, f.Lost)
}
