package tap

import (
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// Label is what a device says of itself in an alternative name (ip link property
// add … altname), where the next process finds it, wherever the device has been
// moved to. It is also how a persistent device is known to be one of ours. The alias
// (IFLA_IFALIAS) is no place for it: LLDP daemons announce that to the network.
type Label struct {
	Name       string    // of the device when it was made
	Since      time.Time // when that was, to the second
	Adopted    int       // processes that have taken it over
	TxQueueLen int       // frames, as configured
	Memory     Memory

	number uint32 // of the label of this device: the largest is the present one
	random uint32 // of the device: names are in a namespace
}

// Memory is what a process wants the next one to know of a device: see
// host.Agreement. Zero values are left out.
type Memory struct {
	MAC, WantMAC net.HardwareAddr
	MTU, WantMTU int
	Granted      bool
}

// labelPrefix begins an alternative name that is a label. The fields follow,
// numbers in hexadecimal, separated by hyphens; the device's name is the last.
const labelPrefix = "splitnic-"

const labelFields = 11

// maxAltName is ALTIFNAMSIZ of the kernel without the final zero.
const maxAltName = 127

// String is the label as an alternative name.
func (l *Label) String() string {
	granted := 0
	if l.Memory.Granted {
		granted = 1
	}
	return fmt.Sprintf("%s%08x-%x-%x-%x-%x-%x-%x-%d-%x-%x-%s", labelPrefix, l.random, l.number, uint64(l.Since.Unix()),
		l.Adopted, l.TxQueueLen,
		[]byte(l.Memory.MAC), l.Memory.MTU, granted, []byte(l.Memory.WantMAC), l.Memory.WantMTU, l.Name)
}

// parseLabel reads an alternative name, and reports whether it is a label. What is
// damaged in it is zero.
func parseLabel(altName string) (l Label, ok bool) {
	rest, ok := strings.CutPrefix(altName, labelPrefix)
	fields := strings.SplitN(rest, "-", labelFields)
	if !ok || len(altName) > maxAltName || len(fields) != labelFields {
		return Label{}, false
	}
	l = Label{
		random: uint32(parseCount(fields[0])), number: uint32(parseCount(fields[1])),
		Since:   time.Unix(int64(parseCount(fields[2])), 0).UTC(),
		Adopted: parseCount(fields[3]), TxQueueLen: parseCount(fields[4]),
		Memory: Memory{
			MAC: parseMAC(fields[5]), MTU: parseCount(fields[6]), Granted: fields[7] == "1",
			WantMAC: parseMAC(fields[8]), WantMTU: parseCount(fields[9]),
		},
	}
	if name := fields[10]; CheckName(name) == nil && !strings.Contains(name, "%") {
		l.Name = name
	}
	return l, true
}

// labelOf is a device's label, and reports whether it has one. It may have two, if
// a process was killed when it wrote another.
func labelOf(link netlink.Link) (label Label, ok bool) {
	for _, name := range link.Attrs().AltNames {
		if l, is := parseLabel(name); is && (!ok || l.number > label.number) {
			label, ok = l, true
		}
	}
	return label, ok
}

// parseCount is zero for what is no number below 2^32.
func parseCount(text string) int {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// parseMAC is nil for what is not the address of one station.
func parseMAC(text string) net.HardwareAddr {
	mac, err := hex.DecodeString(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return nil
	}
	return mac
}
