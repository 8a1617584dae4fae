package render

import (
	"fmt"
	"io"

	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// printHostDirect prints the direct connections of a host. When the session with the I/O unit has
// ended, they continue for a while.
func printHostDirect(w io.Writer, indent string, state host.State, s *direct.Status) {
	switch {
	case !s.On:
		fmt.Fprintf(w, "%sdirect\tno (--direct=no)\n", indent)
	case !s.Granted && state != host.Connected && len(s.Connections) == 0:
		fmt.Fprintf(w, "%sdirect\tno: there is no session with an I/O unit\n", indent)
	case !s.Granted && state == host.Connected:
		fmt.Fprintf(w, "%sdirect\tno: the I/O unit directs none\n", indent)
	default:
		t := &s.Total
		fmt.Fprintf(w, "%sdirect\t%s, ended: %d; %s out, %d in\n", indent, Counted(len(s.Connections), "connection"),
			t.Ended, Counted(t.OutFrames, "frame"), t.InFrames)
	}
	for i := range s.Connections {
		c := &s.Connections[i]
		n := &c.Counts
		fmt.Fprintf(w, "%s  to %s\t%s for %v, mode %s, platform %v; %s out, %d in\n", indent, c.Peer, c.State,
			ago(c.Since), c.Mode, c.Platform, Counted(n.OutFrames, "frame"), n.InFrames)
	}
	n := &s.Total
	for _, d := range []struct {
		what string
		n    uint64
	}{
		{"from a wrong source address", n.Source}, {"to a wrong destination address", n.Destination},
		{"in a wrong VLAN", n.VLAN}, {"malformed", n.Malformed}, {"to hosts that are slow", n.Full},
		{"lost at the end of a connection", n.Lost}, {"perhaps lost at the end of a connection", n.Uncertain},
		{"for the I/O unit, which took none", s.UplinkFull},
	} {
		if d.n > 0 {
			fmt.Fprintf(w, "%s  dropped\t%d %s\n", indent, d.n, d.what)
		}
	}
}
