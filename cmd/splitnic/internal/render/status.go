// Package render shows people what the endpoints answer.
package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vhostuser"
)

// Status is the status of one daemon: of a host, an agent, or an I/O unit.
type Status struct {
	Host  *daemon.HostStatus
	Agent *daemon.AgentStatus
	Unit  *daemon.UnitStatus
}

// Parse reads what a daemon has answered.
func Parse(raw json.RawMessage) (s Status, err error) {
	var head struct {
		Role string `json:"role"`
	}
	if err = json.Unmarshal(raw, &head); err != nil {
		return s, fmt.Errorf("status: %w", err)
	}
	switch head.Role {
	case "host":
		s.Host = new(daemon.HostStatus)
		err = json.Unmarshal(raw, s.Host)
	case "agent":
		s.Agent = new(daemon.AgentStatus)
		err = json.Unmarshal(raw, s.Agent)
	default:
		s.Unit = new(daemon.UnitStatus)
		err = json.Unmarshal(raw, s.Unit)
	}
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return s, nil
}

// Details prints everything about the daemons.
func Details(w io.Writer, all []Status) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range all {
		switch {
		case s.Host != nil:
			printHost(tw, s.Host)
		case s.Agent != nil:
			printAgent(tw, s.Agent)
		default:
			printUnit(tw, s.Unit)
		}
		if err := tw.Flush(); err != nil { // columns are each daemon's own
			return err
		}
	}
	return nil
}

// stayText is why a host stays with an I/O unit that drains.
func stayText(why string) string {
	if why == "" {
		return ""
	}
	return "; this one stays: " + why
}

// ago is how long ago t was. The clock may have been set since.
func ago(t time.Time) time.Duration { return max(time.Since(t), 0).Round(time.Second) }

func printHost(w io.Writer, s *daemon.HostStatus) {
	carrier := "no carrier"
	if s.Netdevice.Carrier {
		carrier = "carrier"
	}
	fmt.Fprintf(w, "host %s\t%s for %v\n", s.Name, s.State, ago(s.Since))
	fmt.Fprintf(w, "  netdevice\t%s, %s, mtu %d, %s%s\n", s.Netdevice.Name, s.Netdevice.MAC, s.Netdevice.MTU, carrier,
		historyText(&s.Netdevice))
	if p := s.Port; p != nil {
		fmt.Fprintf(w, "  port\t%s\n", portText(p))
	}
	fmt.Fprintf(w, "  offloads\t%s\n", s.Netdevice.Offloads)
	fmt.Fprintf(w, "  early discard\t%v\n", s.Netdevice.EarlyDiscard)
	printLatency(w, "  ", s.Latency)
	fmt.Fprintf(w, "  I/O unit\t%s %s %s\n", s.IOUnit.Address, s.IOUnit.Name, s.IOUnit.Fingerprint)
	printDNS(w, &s.IOUnit)
	if s.IOUnit.Drains {
		fmt.Fprintf(w, "  drains\tthe I/O unit asks its hosts to go%s\n", stayText(s.IOUnit.Stays))
	}
	if s.IOUnit.Platform != 0 {
		fmt.Fprintf(w, "  its platform\t%v\n", s.IOUnit.Platform)
	}
	printFailovers(w, "  ", &s.Failovers)
	printHostDirect(w, "  ", s.State, &s.Direct)
	if s.IOUnit.Mode != "" {
		fmt.Fprintf(w, "  mode\t%s\n", s.IOUnit.Mode)
	}
	if s.Filter != nil {
		fmt.Fprintf(w, "  receives\t%s\n", filterText(s.Filter))
	}
	if s.VLANs != nil {
		fmt.Fprintf(w, "  VLANs\t%v\n", s.VLANs)
	}
	if r := s.LastRefusal; r != nil {
		fmt.Fprintf(w, "  last refusal\t%s %s, %v ago: %s\n", r.What, r.Wanted, ago(r.At), r.Reason)
	}
	printCaptures(w, "  ", s.Captures)
	if s.IOUnit.Insecure {
		fmt.Fprintf(w, "  security\tINSECURE: nobody is authenticated\n")
	}
	fmt.Fprintf(w, "  device\t%s\n", s.Device)
	printProtection(w, "  ", s.Protection)
	printSecurity(w, &s.Security)
	printCounts(w, "sessions ended here", s.Ended)
	if s.LastError != "" {
		fmt.Fprintf(w, "  last error\t%s\n", s.LastError)
	}
	if s.Traffic != nil {
		printTraffic(w, "  ", s.Traffic)
	}
	NewHandlers(s.CompVectors, s.Interrupts, s.Handling, s.Traffic).Print(w, "  ")
}

// printDNS prints what DNS has said about I/O units, and in which order the host prefers
// them, if it was asked.
func printDNS(w io.Writer, s *host.IOUnitStatus) {
	for i := range s.DNS {
		fmt.Fprintf(w, "  DNS\t%s: %s\n", s.DNS[i].Name, dnsText(&s.DNS[i]))
	}
	if len(s.DNS) > 0 && len(s.Candidates) > 0 {
		fmt.Fprintf(w, "  candidates\t%s\n", strings.Join(s.Candidates, ", "))
	}
}

// dnsText is what DNS has said about a name.
func dnsText(s *discovery.Status) string {
	text := "not answered yet"
	if !s.Answered.IsZero() {
		text = fmt.Sprintf("%d I/O units, answered %v ago", s.Units, ago(s.Answered))
	}
	if s.Kept {
		text += ", to a process before this one"
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d records without a host and port", s.Skipped)
	}
	if s.Error != "" {
		text += fmt.Sprintf("; FAILS, %d times: %s", s.Failures, s.Error)
	}
	return text
}

// historyText says how long the netdevice has been there, if that is known, and
// in how many processes.
func historyText(n *host.NetdeviceStatus) string {
	text := ""
	if !n.Since.IsZero() {
		text = fmt.Sprintf("; there for %v", ago(n.Since))
	}
	if n.Adopted > 0 {
		text += fmt.Sprintf(", taken over %d times", n.Adopted)
	}
	return text
}

// filterText says what a host receives besides what is for it and for all.
func filterText(f *protocol.ReceiveFilter) string {
	switch {
	case f.Promisc:
		return "everything on the LAN"
	case f.AllMulti:
		return fmt.Sprintf("all multicast, %d further addresses", len(f.Unicast))
	default:
		return fmt.Sprintf("%d groups, %d further addresses", len(f.Multicast), len(f.Unicast))
	}
}

// poolsText lists pools, such as 256×2048, 32×65535.
func poolsText(pools []messaging.Pool) string {
	var text []string
	for _, p := range pools {
		t := fmt.Sprintf("%d×%d", p.Elements, p.ElementSize)
		if p.Extra {
			t += " (asked for)"
		}
		text = append(text, t)
	}
	if text == nil {
		return "none"
	}
	return strings.Join(text, ", ")
}

// printProtection says what bounds the peer to the memory that it is
// lent.
func printProtection(w io.Writer, indent string, p messaging.Protecting) {
	fmt.Fprintf(w, "%sprotection\t%s: %s; %s\n", indent, p.Name, p.Name.Description(), p.Why)
}

func printTraffic(w io.Writer, indent string, s *messaging.Stats) {
	if s.Bound {
		fmt.Fprintf(w, "%sbinding\tboth sides have proved that the queue pairs are theirs\n", indent)
	} else {
		fmt.Fprintf(w, "%sbinding\tnone: the peer has not proved that the queue pairs are its own\n", indent)
	}
	fmt.Fprintf(w, "%spools protected by\t%s: %s\n", indent, s.Protection.Name, s.Protection.Why)
	fmt.Fprintf(w, "%smemory\t%.1f MiB registered\n", indent, float64(s.MemoryPinned)/(1<<20))
	fmt.Fprintf(w, "%spools on request\t%d asked for, %d given back; %d lent, %d refused, %d taken back\n",
		indent, s.PoolsAsked, s.PoolsGiven, s.PoolsGranted, s.PoolsRefused, s.PoolsReturned)
	for i, c := range s.Channels {
		moderated := ""
		if c.Moderated {
			moderated = ", moderated"
		}
		handler := fmt.Sprintf("handler %d", c.Handler)
		if c.Handler == messaging.Unassigned {
			handler = "no handler"
		}
		fmt.Fprintf(w, "%squeue %d%s\tQP %#x ↔ %#x, %s, completion vector %d%s\n", indent, i+1, class(&c), c.QPN,
			c.PeerQPN, handler, c.CompVector, moderated)
		fmt.Fprintf(w, "%s  to the peer\t%d frames, %d bytes, %d doorbells, %d too long, %d malformed, %d waits for credit\n",
			indent, c.TxFrames, c.TxBytes, c.TxPosts, c.TxTooLong, c.TxMalformed, c.TxNoCredit)
		fmt.Fprintf(w, "%s  from the peer\t%d frames, %d bytes, %d dropped, %d malformed, %d over the MTU\n",
			indent, c.RxFrames, c.RxBytes, c.RxDropped, c.RxMalformed, c.RxOverMTU)
		fmt.Fprintf(w, "%s  credits\t%d of %d available here, %d of %d lent to the peer\n",
			indent, c.Remote.Available, c.Remote.Elements, c.Local.Lent, c.Local.Elements)
		fmt.Fprintf(w, "%s  pools\t%s here; %s lent to the peer, %.1f MiB with the send buffers\n",
			indent, poolsText(c.RemotePools), poolsText(c.LocalPools), float64(c.MemoryPinned)/(1<<20))
		if c.WindowsBound > 0 {
			fmt.Fprintf(w, "%s  windows\t%d bound, %d invalidated here, %d by the peer\n", indent, c.WindowsBound,
				c.WindowsInvalidated, c.WindowsInvalidatedByPeer)
		}
		if n := c.Revocations; n > 0 {
			fmt.Fprintf(w, "%s  one-touch\tkeys void %v after the first transfer of a batch was taken, at most %v, in %d "+
				"batches\n", indent, time.Duration(c.RevocationTime/n), c.RevocationMax, n)
		}
		if c.RxLost+c.RxLate > 0 {
			fmt.Fprintf(w, "%s  lost on the fabric\t%d frames, %d late\n", indent, c.RxLost, c.RxLate)
		}
	}
}

// printLatency prints what has become of the wish for a latency queue.
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

// class says what a data channel is for, if not for all frames.
func class(c *messaging.ChannelStats) string {
	if c.Latency {
		return " (latency)"
	}
	return ""
}

// printFailovers prints fail-overs if there were any.
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
	counts := map[string]uint64{}
	for r, n := range s.Count {
		counts[string(r)] = n
	}
	printCounts(w, "fail-overs", counts)
	fmt.Fprintf(w, "%sreconnected\t%d times with the same I/O unit\n", indent, s.Reconnects)
	fmt.Fprintf(w, "%sframes then\t%d carried over, %d uncertain, %d lost\n", indent, s.Carried, s.Uncertain, s.Lost)
	fmt.Fprintf(w, "%slast fail-over\t%v ago, %s\n", indent, ago(s.Last.At), Failover(s.Last))
}

// printSecurity prints the status.
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
		fmt.Fprintf(w, "  trust\t%d keys%s; %d keys revoked\n", s.Keys, authorities, s.Revoked)
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

// Failover is a fail-over in one line.
func Failover(f *uplink.Failover) string {
	return fmt.Sprintf("%s → %s (%s): took %v, no frames for %v; %d frames carried over, %d uncertain, %d lost",
		f.From, f.To, f.Reason, f.Took.Round(100*time.Microsecond), f.Gap.Round(100*time.Microsecond),
		f.Carried, f.Uncertain, f.Lost)
}

// portText describes a vhost-user port.
func portText(p *vhostuser.Status) string {
	a := vhostuser.Address{Path: p.Path, Client: p.Client}
	switch {
	case p.FrontEnd != "":
		text := fmt.Sprintf("%v: %s, %d rings, %s", a, p.FrontEnd, p.Rings, strings.Join(p.Features, ","))
		if p.Registered > 0 || p.NotRegistered != "" {
			text += fmt.Sprintf(", %d MiB registered", p.Registered>>20)
		}
		if p.NotRegistered != "" {
			text += ", but not all: " + p.NotRegistered
		}
		return text
	case p.LastError != "":
		return fmt.Sprintf("%v: nobody is connected: %s", a, p.LastError)
	default:
		return fmt.Sprintf("%v: nobody is connected", a)
	}
}
