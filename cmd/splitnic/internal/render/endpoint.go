package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap/steer"
)

// poolsText lists pools by number and size of elements, such as 256×2048, 32×65535.
func poolsText(pools []messaging.Pool) string {
	var text []string
	for _, p := range pools {
		t := fmt.Sprintf("%d×%d", p.Elements, p.ElementSize)
		if p.Extra {
			t += " (asked for)"
		}
		text = append(text, t)
	}
	return cmp.Or(strings.Join(text, ", "), "none")
}

// printProtection prints what restricts the peer to the memory that it is lent.
func printProtection(w io.Writer, indent string, p messaging.ProtectionInForce) {
	fmt.Fprintf(w, "%sprotection\t%s: %s; %s\n", indent, p.Name, p.Name.Description(), p.Why)
}

func printTraffic(w io.Writer, indent string, s *messaging.Stats) {
	binding := "none: the peer has not proved that the queue pairs are its own"
	if s.Bound {
		binding = "both sides have proved that the queue pairs are theirs"
	}
	fmt.Fprintf(w, "%sbinding\t%s\n", indent, binding)
	encryption := "none: the fabric sees all frames"
	if s.Cipher != "" {
		encryption = string(s.Cipher) + ", of all frames and messages"
	}
	fmt.Fprintf(w, "%sencryption\t%s\n", indent, encryption)
	proved := ", which was not tried"
	if s.PathProved {
		proved = ", packets of that length have got through"
	}
	fmt.Fprintf(w, "%spath MTU\t%d bytes%s\n", indent, s.PathMTU, proved)
	fmt.Fprintf(w, "%spools protected by\t%s: %s\n", indent, s.Protection.Name, s.Protection.Why)
	fmt.Fprintf(w, "%smemory\t%s registered\n", indent, units.Size(s.MemoryPinned))
	fmt.Fprintf(w, "%spools on request\t%d asked for, %d given back; %d lent, %d refused, %d taken back\n",
		indent, s.PoolsAsked, s.PoolsGiven, s.PoolsGranted, s.PoolsRefused, s.PoolsReturned)
	for i, c := range s.Channels {
		latency, moderated := "", ""
		if c.Latency {
			latency = " (latency)"
		}
		if c.Moderated {
			moderated = ", moderated"
		}
		handler := fmt.Sprintf("handler %d", c.Handler)
		if c.Handler == cq.Unassigned {
			handler = "no handler"
		}
		fmt.Fprintf(w, "%squeue %d%s\tQP %#x ↔ %#x, %s, completion vector %d%s, up to %d bytes inline\n", indent, i+1,
			latency, c.QPN, c.PeerQPN, handler, c.CompVector, moderated, c.Inline)
		fmt.Fprintf(w, "%s  to the peer\t%s, %s, %s, %d too long, %d malformed, %s for credit\n",
			indent, Counted(c.TxFrames, "frame"), Counted(c.TxBytes, "byte"), Counted(c.TxPosts, "doorbell"), c.TxTooLong,
			c.TxMalformed, Counted(c.TxNoCredit, "wait"))
		fmt.Fprintf(w, "%s  from the peer\t%s, %s, %d dropped, %d malformed, %d over the MTU\n",
			indent, Counted(c.RxFrames, "frame"), Counted(c.RxBytes, "byte"), c.RxDropped, c.RxMalformed, c.RxOverMTU)
		fmt.Fprintf(w, "%s  credits\t%d of %d available here, %d of %d lent to the peer\n",
			indent, c.Remote.Available, c.Remote.Elements, c.Local.Lent, c.Local.Elements)
		fmt.Fprintf(w, "%s  pools\t%s here; %s lent to the peer, %s with the send buffers\n",
			indent, poolsText(c.RemotePools), poolsText(c.LocalPools), units.Size(c.MemoryPinned))
		if c.WindowsBound > 0 {
			fmt.Fprintf(w, "%s  windows\t%d bound, %d invalidated here, %d by the peer\n", indent, c.WindowsBound,
				c.WindowsInvalidated, c.WindowsInvalidatedByPeer)
		}
		if n := c.Revocations; n > 0 {
			fmt.Fprintf(w, "%s  one-touch\tkeys void %v after the first transfer of a batch was taken, at most %v, in %s\n",
				indent, time.Duration(c.RevocationTime/n), c.RevocationMax, Counted(n, "batch"))
		}
		if c.RxLost+c.RxLate > 0 {
			fmt.Fprintf(w, "%s  lost on the fabric\t%s, %d late\n", indent, Counted(c.RxLost, "frame"), c.RxLate)
		}
	}
}

// printLatency prints whether there is the requested latency queue, and the reason if not.
func printLatency(w io.Writer, indent string, s *steer.Status) {
	switch {
	case s == nil:
	case s.On:
		small := ""
		if s.Size > 0 {
			small = fmt.Sprintf(", packets up to %d bytes", s.Size)
		}
		fmt.Fprintf(w, "%slatency queue\tDSCP %v, ARP, ND, echo%s; frames up to %d bytes\n", indent, s.DSCP, small, s.Limit)
	default:
		fmt.Fprintf(w, "%slatency queue\tnone: %s\n", indent, s.Reason)
	}
}

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

func printSecurity(w io.Writer, s *daemon.SecurityStatus) {
	if s.Platform != 0 {
		fmt.Fprintf(w, "  platform\t%v\n", s.Platform)
	}
	if s.Fingerprint != "" && !s.Insecure {
		fmt.Fprintf(w, "  key\t%s\n", s.Fingerprint)
		authorities := ""
		if s.Authorities {
			authorities = ", and whom the authorities trust"
		}
		fmt.Fprintf(w, "  trust\t%s%s; %s revoked\n", Counted(s.Keys, "key"), authorities, Counted(s.Revoked, "key"))
		if !s.Expires.IsZero() {
			not := ""
			if daemon.Untimely(&s.Standing, time.Now()) {
				not = ", NOT VALID NOW"
			}
			fmt.Fprintf(w, "  certificate\tfrom %s to %s%s\n", s.Begins.Local().Format(time.DateTime),
				s.Expires.Local().Format(time.DateTime), not)
		}
		if s.OwnRevoked {
			fmt.Fprintf(w, "  REVOKED\tthis side's own key is in its list of revoked keys\n")
		}
	}
	if r := s.Reload; !r.Last.IsZero() {
		result := "done"
		if r.Error != "" {
			result = "FAILED, everything stayed as it was: " + r.Error
		}
		fmt.Fprintf(w, "  last reload\t%v ago, %s\n", ago(r.Last), result)
	}
}

func printCaptures(w io.Writer, indent string, all []capture.Status) {
	for _, c := range all {
		of := ""
		if c.Paths != "" {
			of += fmt.Sprintf(" of paths %q", c.Paths)
		}
		if c.Filter != "" {
			of += fmt.Sprintf(" by filter %q", c.Filter)
		}
		fmt.Fprintf(w, "%scapture\t%s%s for %v, %d dropped\n", indent, Counted(c.Frames-c.Dropped, "frame"), of, ago(c.Since),
			c.Dropped)
	}
}
