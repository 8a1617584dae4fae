package tap

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// Label is what a device says of itself in its alias (IFLA_IFALIAS), where the
// next process finds it, wherever the device has been moved to. It is also how
// a persistent device is known to be one of ours.
type Label struct {
	Name       string    // of the device when it was made
	Since      time.Time // when that was, to the second
	Adopted    int       // processes that have taken it over
	TxQueueLen int       // frames, as configured
	Memory     Memory
}

// Memory is what a process wants the next one to know of a device: see
// host.Agreement. Zero values are left out.
type Memory struct {
	MAC, WantMAC net.HardwareAddr
	MTU, WantMTU int
	Granted      bool
}

// labelPrefix begins an alias that is a label; key=value pairs follow, separated
// by spaces.
const labelPrefix = "splitnic "

// maxAlias is IFALIASZ of the kernel without the final zero.
const maxAlias = 255

// String is the label as an alias.
func (l *Label) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%sname=%s since=%s adopted=%d txqueuelen=%d", labelPrefix, l.Name, l.Since.UTC().Format(time.RFC3339), l.Adopted, l.TxQueueLen)
	mac := func(key string, v net.HardwareAddr) {
		if v != nil {
			fmt.Fprintf(&b, " %s=%v", key, v)
		}
	}
	mtu := func(key string, v int) {
		if v != 0 {
			fmt.Fprintf(&b, " %s=%d", key, v)
		}
	}
	mac("mac", l.Memory.MAC)
	mtu("mtu", l.Memory.MTU)
	if l.Memory.Granted {
		b.WriteString(" granted=yes")
	}
	mac("want-mac", l.Memory.WantMAC)
	mtu("want-mtu", l.Memory.WantMTU)
	return b.String()
}

// parseLabel reads an alias, and reports whether it is a label: that of another
// version may have keys that are not known here, and lack others.
func parseLabel(alias string) (l Label, ok bool) {
	rest, ok := strings.CutPrefix(alias, labelPrefix)
	if !ok || len(alias) > maxAlias {
		return Label{}, false
	}
	for pair := range strings.FieldsSeq(rest) {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "name":
			if checkName(value) == nil && !strings.Contains(value, "%") {
				l.Name = value
			}
		case "since":
			if t, err := time.Parse(time.RFC3339, value); err == nil {
				l.Since = t
			}
		case "adopted":
			l.Adopted = parseCount(value)
		case "txqueuelen":
			l.TxQueueLen = parseCount(value)
		case "mac":
			l.Memory.MAC = parseMAC(value)
		case "mtu":
			l.Memory.MTU = parseCount(value)
		case "granted":
			l.Memory.Granted = value == "yes"
		case "want-mac":
			l.Memory.WantMAC = parseMAC(value)
		case "want-mtu":
			l.Memory.WantMTU = parseCount(value)
		}
	}
	return l, true
}

// parseCount is zero for what is no number from 0 to 65535 squared.
func parseCount(text string) int {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// parseMAC is nil for what is not the address of one station.
func parseMAC(text string) net.HardwareAddr {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return nil
	}
	return mac
}

// Label returns the device's label.
func (d *Device) Label() Label {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.label
}

// SetMemory writes m into the device's label, for the next process.
func (d *Device) SetMemory(m Memory) error {
	l := d.Label()
	l.Memory = m
	return d.setLabel(l)
}

// setLabel makes l the device's alias, unless an administrator has given it
// another: his counts.
func (d *Device) setLabel(l Label) error {
	return d.netlink("labelling", func(h *netlink.Handle, link netlink.Link) error {
		d.label = l
		if alias := link.Attrs().Alias; alias != "" && !strings.HasPrefix(alias, labelPrefix) {
			return nil
		}
		return h.LinkSetAlias(link, l.String())
	})
}
