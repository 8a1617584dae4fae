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

// Label has facts about a device for the process that takes it over next. It is stored in an
// alternative name of the device (ip link property add … altname), which stays when the device
// is moved to another namespace. A label also marks a persistent device as made by splitnic.
// The alias (IFLA_IFALIAS) is not used, because LLDP daemons announce it to the network.
type Label struct {
	Name       string    // name of the device when it was made
	Since      time.Time // time when it was made, to the second
	Adopted    int       // number of processes that have taken it over
	TxQueueLen int       // frames, as configured
	Memory     Memory

	number uint32 // sequence number of the label: the device's largest one is valid
	random uint32 // one per device: a namespace cannot have the same name twice
}

// Memory has what a process hands on to the next one about a device: see mirror.Agreement.
// Zero values are unknown or not set.
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

// String returns the label as an alternative name.
func (l *Label) String() string {
	granted := 0
	if l.Memory.Granted {
		granted = 1
	}
	return fmt.Sprintf("%s%08x-%x-%x-%x-%x-%x-%x-%d-%x-%x-%s", labelPrefix, l.random, l.number, uint64(l.Since.Unix()),
		l.Adopted, l.TxQueueLen,
		[]byte(l.Memory.MAC), l.Memory.MTU, granted, []byte(l.Memory.WantMAC), l.Memory.WantMTU, l.Name)
}

// parseLabel parses an alternative name, and reports whether it is a label. Damaged fields
// are zero.
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

// labelOf returns a device's valid label, and reports whether it has one. A device has two
// labels if a process was killed while it replaced one.
func labelOf(link netlink.Link) (label Label, ok bool) {
	for _, name := range link.Attrs().AltNames {
		if l, is := parseLabel(name); is && (!ok || l.number > label.number) {
			label, ok = l, true
		}
	}
	return label, ok
}

// parseCount parses a hexadecimal number below 2^32. It returns 0 for anything else.
func parseCount(text string) int {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// parseMAC parses a unicast address. It returns nil for anything else.
func parseMAC(text string) net.HardwareAddr {
	mac, err := hex.DecodeString(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return nil
	}
	return mac
}
