package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func printUnit(w io.Writer, s *daemon.UnitStatus) {
	fmt.Fprintf(w, "iounit %s\tfor %v, %s\n", s.Name, ago(s.Since), Counted(len(s.Hosts), "host"))
	fmt.Fprintf(w, "  LAN\t%s: %s\n", s.NIC, lanText(&s.LAN))
	printDevice(w, s.Device, s.DeviceState)
	if s.Drain != nil {
		fmt.Fprintf(w, "  DRAINING\tfor %v, takes no hosts; %d left\n", ago(s.Drain.Since), len(s.Drain.Remaining))
		for _, line := range Remaining(s.Drain) {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
	printProtection(w, "  ", s.Protection)
	if s.Without != "" {
		fmt.Fprintf(w, "  transfer modes\t%s\n", s.Without)
	}
	printSecurity(w, &s.Security)
	printTotals(w, &s.Status)
	printDirect(w, s.Direct)
	printCaptures(w, "  ", s.Captures)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		fmt.Fprintf(w, "  host %s\t%s, %s on %s, mtu %d, for %v\n", h.Name, h.Address, h.MAC, h.Interface, h.MTU,
			ago(h.Since))
		if h.Insecure {
			fmt.Fprintf(w, "    security\tINSECURE: not authenticated\n")
		} else {
			fmt.Fprintf(w, "    key\t%s\n", strings.TrimSpace(h.TrustedAs+" "+h.Fingerprint))
		}
		if h.Platform != 0 {
			fmt.Fprintf(w, "    platform\t%v\n", h.Platform)
		}
		if s.Direct != nil && h.NoDirect != "" {
			fmt.Fprintf(w, "    direct\tno: %s\n", h.NoDirect)
		}
		printPort(w, "    ", h)
		printLatency(w, "    ", h.Latency)
		if h.Traffic != nil {
			printTraffic(w, "    ", h.Traffic)
			NewHandlers(s.CompVectors, s.Interrupts, messaging.HandlingOf(h.Traffic), h.Traffic).Print(w, "    ")
		}
	}
}

// lanText describes the network card.
func lanText(l *iounit.LANStatus) string {
	if l.Error != "" {
		return l.Error
	}
	text := fmt.Sprintf("%s, mtu %d", upDown(l.Up), l.MTU)
	if l.SpeedMbps > 0 {
		text += ", " + rate(int64(l.SpeedMbps)*1e6)
	}
	return text
}

func printDirect(w io.Writer, d *iounit.DirectStatus) {
	if d == nil {
		fmt.Fprintf(w, "  direct\toff\n")
		return
	}
	fmt.Fprintf(w, "  direct\t%d offered, %d started, %d of them from before\n", d.Offers, d.Starts, d.Kept)
	printCounts(w, "direct ended", d.Ended)
	for i := range d.Pairs {
		p := &d.Pairs[i]
		if p.Step == iounit.NoDirect {
			fmt.Fprintf(w, "    %s and %s\tnot direct: %s\n", p.Hosts[0], p.Hosts[1], p.Why)
			continue
		}
		why := ""
		if p.Why != "" {
			why = ": " + p.Why
		}
		fmt.Fprintf(w, "    %s and %s\t%s for %v, mode %s%s\n", p.Hosts[0], p.Hosts[1], p.Step, ago(p.Since), p.Mode, why)
	}
}

func printTotals(w io.Writer, s *iounit.Status) {
	limit := "no limit"
	if s.Memory.Limit > 0 {
		limit = "of " + units.Size(s.Memory.Limit)
	}
	fmt.Fprintf(w, "  memory\t%s registered, %s\n", units.Size(s.Memory.Used), limit)
	b := &s.Bootstrap
	fmt.Fprintf(w, "  connections\t%d, %d of them in their handshake; %s, %d delayed\n", b.Connections,
		b.Handshaking, Counted(b.Handshakes, "handshake"), b.Delayed)
	printCounts(w, "refused", s.Refusals)
	if s.Elsewhere > 0 {
		fmt.Fprintf(w, "  elsewhere\t%s that connected, and went to another I/O unit\n", Counted(s.Elsewhere, "host"))
	}
	printCounts(w, "protocol violations", s.Violations)
	printCounts(w, "sessions ended", s.Ended)
	if s.Unrevoked > 0 {
		fmt.Fprintf(w, "  lost then\t%s in one-touch elements whose windows were not revoked yet\n",
			Counted(s.Unrevoked, "frame"))
	}
}

// printCounts prints counts with their names, if there are any.
func printCounts[K ~string](w io.Writer, what string, counts map[K]uint64) {
	if len(counts) == 0 {
		return
	}
	var list []string
	for name, n := range counts {
		list = append(list, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(list)
	fmt.Fprintf(w, "  %s\t%s\n", what, strings.Join(list, ", "))
}

func printPort(w io.Writer, indent string, h *iounit.HostStatus) {
	fmt.Fprintf(w, "%sport\t%s, mode %s, VLANs %s, receives %s\n", indent, upDown(h.Up), h.Mode, h.VLANs, receives(h))
	if h.MaxTxRate+h.MaxRxRate+h.MaxTxPPS+h.MaxRxPPS > 0 || h.TxLimited+h.RxLimited > 0 { // there is a limit, or was
		fmt.Fprintf(w, "%srates\t%s to the LAN, limited %s; %s from it, limited %s\n", indent, rates(h.MaxTxRate, h.MaxTxPPS),
			Counted(h.TxLimited, "time"), rates(h.MaxRxRate, h.MaxRxPPS), Counted(h.RxLimited, "time"))
	}
	if h.MaxTxGroupPPS > 0 {
		fmt.Fprintf(w, "%sto groups\t%s/s to the LAN, more are dropped\n", indent, Counted(h.MaxTxGroupPPS, "packet"))
	}
	fmt.Fprintf(w, "%searly discard\t%v\n", indent, h.EarlyDiscard)
	fmt.Fprintf(w, "%sannounced\tby %s to the LAN\n", indent, Counted(h.Announced, "frame"))
	fmt.Fprintf(w, "%sdropped on the way to the host\t%s\n", indent, dropped(h, "rx"))
	fmt.Fprintf(w, "%sdropped on the way to the LAN\t%s\n", indent, dropped(h, "tx"))
	if h.TxOversize > 0 {
		fmt.Fprintf(w, "%soversize on the LAN\t%s, longer than the card's MTU and one VLAN tag: "+
			"raise the card's MTU\n", indent, Counted(h.TxOversize, "frame"))
	}
	for _, reason := range h.DropReasons {
		fmt.Fprintf(w, "%s  dropped for\t%s\n", indent, reason)
	}
}

func receives(h *iounit.HostStatus) string {
	f := &h.Filter
	if f.Promisc {
		return "everything (promiscuous)"
	}
	words := h.MAC
	if n := len(f.Unicast); n > 0 {
		words += " and " + Counted(n, "more address")
	}
	if f.AllMulti {
		return words + ", all groups"
	}
	return words + ", " + Counted(len(f.Multicast), "group")
}

// Statistics prints the I/O unit's counters of a host.
func Statistics(w io.Writer, s *protocol.Statistics) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	counts := counter.Values(nil, s)
	for i, c := range counter.Of[protocol.Statistics]("") {
		fmt.Fprintf(tw, "%s\t%d\t%s\n", c.Name, counts[i], c.Help)
	}
	return tw.Flush()
}

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
