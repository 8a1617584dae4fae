package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/vhostuser"
)

func printHost(w io.Writer, s *daemon.HostStatus) {
	carrier := "no carrier"
	if s.Netdevice.Carrier {
		carrier = "carrier"
	}
	fmt.Fprintf(w, "card %s\t%s for %v\n", s.Card, s.State, ago(s.Since))
	fmt.Fprintf(w, "  host\t%s\n", s.Name)
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
		stays := ""
		if s.IOUnit.Stays != "" {
			stays = "; this one stays: " + s.IOUnit.Stays
		}
		fmt.Fprintf(w, "  drains\tthe I/O unit asks its hosts to go%s\n", stays)
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
	printDevice(w, s.Device, s.DeviceState)
	printProtection(w, "  ", s.Protection)
	printSecurity(w, &s.Security)
	printCounts(w, "sessions ended here", s.Ended)
	if s.LastError != "" {
		fmt.Fprintf(w, "  last error\t%s\n", s.LastError)
	}
	if n := s.IOUnit.PathMTULimit; n > 0 {
		fmt.Fprintf(w, "  path MTU limit\t%d bytes: larger packets did not get through; a switch with a smaller MTU drops them\n", n)
	}
	if s.Traffic != nil {
		printTraffic(w, "  ", s.Traffic)
	}
	NewHandlers(s.CompVectors, s.Interrupts, s.Handling, s.Traffic).Print(w, "  ")
}

// printDNS prints the answers of DNS about I/O units, if it was queried, and the I/O units in the
// host's order of preference.
func printDNS(w io.Writer, s *host.IOUnitStatus) {
	for i := range s.DNS {
		fmt.Fprintf(w, "  DNS\t%s: %s\n", s.DNS[i].Name, dnsText(&s.DNS[i]))
	}
	if len(s.DNS) > 0 && len(s.Candidates) > 0 {
		fmt.Fprintf(w, "  candidates\t%s\n", strings.Join(s.Candidates, ", "))
	}
}

// dnsText describes the answer of DNS about a name.
func dnsText(s *discovery.Status) string {
	text := "not answered yet"
	if !s.Answered.IsZero() {
		text = fmt.Sprintf("%s, answered %v ago", Counted(s.Units, "I/O unit"), ago(s.Answered))
	}
	if s.Kept {
		text += ", to a process before this one"
	}
	if s.Skipped > 0 {
		text += ", " + Counted(s.Skipped, "record") + " without a host and port"
	}
	if s.Error != "" {
		text += fmt.Sprintf("; FAILS, %s: %s", Counted(s.Failures, "time"), s.Error)
	}
	return text
}

// historyText says for how long the netdevice has existed, if that is known, and how many processes
// have adopted it.
func historyText(n *host.NetdeviceStatus) string {
	text := ""
	if !n.Since.IsZero() {
		text = fmt.Sprintf("; there for %v", ago(n.Since))
	}
	if n.Adopted > 0 {
		text += ", taken over " + Counted(n.Adopted, "time")
	}
	return text
}

// filterText says what a host receives in addition to frames to its own address and broadcasts.
func filterText(f *protocol.ReceiveFilter) string {
	switch {
	case f.Promisc:
		return "everything on the LAN"
	case f.AllMulti:
		return "all multicast, " + Counted(len(f.Unicast), "further address")
	}
	return Counted(len(f.Multicast), "group") + ", " + Counted(len(f.Unicast), "further address")
}

func portText(p *vhostuser.Status) string {
	a := vhostuser.Address{Path: p.Path, Client: p.Client}
	switch {
	case p.FrontEnd != "":
		text := fmt.Sprintf("%v: %s, %s, %s", a, p.FrontEnd, Counted(p.Rings, "ring"), strings.Join(p.Features, ","))
		if p.Registered > 0 || p.NotRegistered != "" {
			text += fmt.Sprintf(", %s registered", units.Size(p.Registered))
		}
		if p.NotRegistered != "" {
			text += ", but not all: " + p.NotRegistered
		}
		return text
	case p.LastError != "":
		return fmt.Sprintf("%v: nobody is connected: %s", a, p.LastError)
	}
	return fmt.Sprintf("%v: nobody is connected", a)
}

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
