package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/splitnic/splitnic/internal/units"
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
