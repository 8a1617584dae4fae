package render

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// Table prints a line for each daemon, and below that of an I/O unit a line for each of its hosts.
func Table(w io.Writer, all []Status, now time.Time) error {
	hosts := columns{}
	hosts.add(cardHeading, hostHeading, "STATE", "FOR", "NETDEV", "CARRIER", "MTU", unitHeading, "DIRECT", noteHeading)
	for _, s := range all {
		if s.Host != nil {
			hosts.add(hostCells(s.Host, now)...)
		}
	}
	var tables []*columns
	if len(hosts.rows) > 1 {
		tables = append(tables, &hosts)
	}
	for _, s := range all {
		if s.Agent != nil {
			tables = append(tables, agentTables(s.Agent, now)...)
		}
		if s.Unit != nil {
			tables = append(tables, unitTables(s.Unit, now)...)
		}
	}
	for i, t := range tables {
		t.dropEmpty()
		if i > 0 && t.indent == "" {
			fmt.Fprintln(w)
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}

func hostCells(s *daemon.HostStatus, now time.Time) []string {
	return []string{
		s.Card, s.Name, string(s.State), duration(now.Sub(s.Since)), s.Netdevice.Name, upDown(s.Netdevice.Carrier),
		strconv.Itoa(s.Netdevice.MTU), cmp.Or(s.IOUnit.Name, s.IOUnit.Address), established(&s.Direct), hostNote(s, now),
	}
}

// established returns the number of direct connections in use for frames.
func established(s *direct.Status) string {
	n := 0
	for i := range s.Connections {
		if s.Connections[i].State == direct.Established {
			n++
		}
	}
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// hostNote returns what an operator has to know first about a host.
func hostNote(s *daemon.HostStatus, now time.Time) string {
	var n notes
	dns, isLast := dnsNotes(s)
	n.add(s.State != host.Connected && s.LastError != "" && !isLast, "%s", s.LastError)
	n.add(s.State == host.Connected && !s.Netdevice.Carrier, "the I/O unit's link is down")
	n.add(s.IOUnit.Drains && s.IOUnit.Stays == "", "the I/O unit drains")
	n.add(s.IOUnit.Drains && s.IOUnit.Stays != "", "stays, I/O unit drains: %s", s.IOUnit.Stays)
	for _, note := range dns {
		n.add(s.State == host.Connected || isLast, "DNS: %s", note)
	}
	n.security(&s.Security, s.IOUnit.Insecure, now)
	n.add(s.Port != nil && s.Port.FrontEnd == "", "nobody is at the vhost-user port")
	n.add(s.Failovers.NoStandby != "", "no standby: %s", s.Failovers.NoStandby)
	if r := s.LastRefusal; r != nil {
		n.add(true, "refused: %s %s: %s", r.What, r.Wanted, r.Reason)
	}
	return strings.Join(n, "; ")
}

// dnsNotes returns the errors of DNS, without their beginnings, which are too long for a line, and
// whether one of them is the host's last error.
func dnsNotes(s *daemon.HostStatus) (notes []string, isLast bool) {
	for i := range s.IOUnit.DNS {
		d := &s.IOUnit.DNS[i]
		if d.Error == "" {
			continue
		}
		isLast = isLast || d.Error == s.LastError
		notes = append(notes, strings.TrimPrefix(strings.TrimPrefix(d.Error, "SRV records of "+d.Name+": "), "DNS "))
	}
	return notes, isLast
}

// notes is the text of a line's last cell, in parts.
type notes []string

func (n *notes) add(is bool, format string, args ...any) {
	if is {
		*n = append(*n, fmt.Sprintf(format, args...))
	}
}

func (n *notes) security(s *daemon.SecurityStatus, insecure bool, now time.Time) {
	n.add(insecure || s.Insecure, "INSECURE")
	n.add(s.OwnRevoked, "its own key is REVOKED")
	n.add(daemon.Untimely(&s.Standing, now), "its certificate is NOT VALID NOW")
	n.add(s.Reload.Error != "", "reload FAILED: %s", s.Reload.Error)
}

// unitTables returns a table with the I/O unit's line, and one with the lines of its hosts.
func unitTables(s *daemon.UnitStatus, now time.Time) []*columns {
	unit := &columns{}
	unit.add(unitHeading, "LAN", "SPEED", "FOR", "MTU", "HOSTS", "DEVICE", "MEMORY", noteHeading)
	var n notes
	n.add(s.LAN.Error != "", "%s", s.LAN.Error)
	if d := s.Drain; d != nil {
		n.add(true, "DRAINING: %d left, %d of them stay", len(d.Remaining), stays(d))
	}
	n.security(&s.Security, false, now)
	n.add(s.Refused > 0, "%d refused", s.Refused)
	speed := none
	if s.LAN.SpeedMbps > 0 {
		speed = rate(int64(s.LAN.SpeedMbps) * 1e6)
	}
	memory := units.Size(s.Memory.Used)
	if s.Memory.Limit > 0 {
		memory += " of " + units.Size(s.Memory.Limit)
	}
	unit.add(s.Name, upDown(s.LAN.Up), speed, duration(now.Sub(s.Since)), strconv.Itoa(s.LAN.MTU),
		strconv.Itoa(len(s.Hosts)), s.Device, memory, strings.Join(n, "; "))
	if len(s.Hosts) == 0 {
		return []*columns{unit}
	}
	hosts := &columns{indent: "  "}
	hosts.add(hostHeading, addressHeading, "MAC", "FOR", "MTU", "TO LAN", "FROM LAN", "DROPPED", noteHeading)
	for i := range s.Hosts {
		hosts.add(unitHostCells(&s.Hosts[i], now)...)
	}
	return []*columns{unit, hosts}
}

// unitHostCells returns the line of a host of an I/O unit. The bytes are those of the session.
func unitHostCells(h *iounit.HostStatus, now time.Time) []string {
	address, _, err := net.SplitHostPort(h.Address)
	if err != nil {
		address = h.Address
	}
	var n notes
	n.add(h.Insecure, "INSECURE")
	n.add(!h.Up, "set down")
	return []string{
		h.Name, address, h.MAC, duration(now.Sub(h.Since)), strconv.Itoa(h.MTU),
		units.Size(h.Statistics.TxBytes), units.Size(h.Statistics.RxBytes),
		units.Short(float64(Dropped(h))), strings.Join(n, "; "),
	}
}
