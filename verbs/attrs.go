package verbs

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/printable"
)

// LinkLayer is the link layer of a port: the values of ibv_port_attr.link_layer.
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

var linkLayers = [...]string{"unspecified", "InfiniBand", "Ethernet"}

// String names the link layer as ibv_devinfo(1) does.
func (l LinkLayer) String() string { return printable.Name(linkLayers[:], l, "link layer") }

// PortState is the logical state of a port: the values of enum ibv_port_state.
type PortState uint8

// Port states.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

var portStates = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

// String names the state as ibv_devinfo(1) does.
func (s PortState) String() string { return printable.Name(portStates[:], s, "state") }

// GIDType is the type of a GID table entry: the values of enum ibv_gid_type.
type GIDType uint8

// Types of GID table entries.
const (
	GIDTypeIB     GIDType = iota // on an InfiniBand port
	GIDTypeRoCEv1                // Ethertype 0x8915: one Ethernet segment only
	GIDTypeRoCEv2                // UDP port 4791: can be routed
)

var gidTypes = [...]string{"IB", "RoCE v1", "RoCE v2"}

// String names the type as the kernel's sysfs does.
func (t GIDType) String() string { return printable.Name(gidTypes[:], t, "GID type") }

// GID is a port's global identifier, in network byte order. On RoCE it is the
// IPv6 address of the port, or its IPv4 address in IPv4-mapped form.
type GID [16]byte

// Addr returns the GID as an IP address. An IPv4-mapped address is returned as IPv4.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether g is the all-zero GID, which identifies no port.
func (g GID) IsZero() bool { return g == GID{} }

// String returns the GID in the notation of an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// GIDEntry is one entry of a port's GID table.
type GIDEntry struct {
	Index        int
	Port         int
	Type         GIDType
	GID          GID
	NetdevIndex  int    // interface index, 0 if there is none
	Netdev       string // interface name, empty if it is in another network namespace
	NetdevPrefix netip.Prefix
}

// String returns index, type, GID and netdevice on one line.
func (e GIDEntry) String() string {
	s := fmt.Sprintf("index %d: %s %s", e.Index, e.Type, e.GID.Addr())
	if e.Netdev != "" {
		s += " on " + e.Netdev
	}
	return s
}

// DeviceInfo has the properties of an RDMA device that are known without opening it.
type DeviceInfo struct {
	Name   string
	Driver string // kernel driver, such as mlx5_core or rdma_rxe; empty if unknown
}

// DeviceAttr has attributes of an opened device, fields of struct ibv_device_attr_ex, that are not
// among its limits.
type DeviceAttr struct {
	Firmware    string
	Ports       int
	MemWindow2B bool // a type-2 window is tied to a queue pair
	MemWindow2A bool

	// Maxima of CQ.Moderate, 0 if the device has no moderation.
	ModerationCount  int
	ModerationPeriod time.Duration
}

// PortAttr has the attributes of one port.
type PortAttr struct {
	Port      int
	State     PortState
	LinkLayer LinkLayer
	MaxMTU    int // bytes
	ActiveMTU int // bytes
	MaxMsg    int // bytes in one message
	GIDs      int // length of the GID table
	PKeys     int // length of the partition key table
	LID       uint16
	// NeedsGRH is true if all packets of the port need GIDs, in a global route header, as with
	// functions of an InfiniBand card that share a LID.
	NeedsGRH bool
	Lanes    int     // 1, 2, 4, 8 or 12; 0 if unknown
	Speed    float64 // Gbit/s, sum of all lanes; 0 if unknown
}

// needsGID reports whether the queue pairs of the port cannot do with the LID.
func (p PortAttr) needsGID() bool { return p.LinkLayer != LinkInfiniBand || p.NeedsGRH }

// String returns the main attributes on one line.
func (p PortAttr) String() string {
	s := fmt.Sprintf("port %d: %s, %s, MTU %d of %d", p.Port, p.State, p.LinkLayer, p.ActiveMTU, p.MaxMTU)
	if p.LinkLayer == LinkInfiniBand {
		s += fmt.Sprintf(", LID %#x", p.LID)
	}
	if p.Speed > 0 {
		s += fmt.Sprintf(", %g Gb/s (%dX)", p.Speed, p.Lanes)
	}
	return s
}

// mtuBytes converts enum ibv_mtu to bytes: 1 … 5 stand for 256 … 4096. Other values give 0.
func mtuBytes(enum uint32) int {
	if enum < 1 || enum > 5 {
		return 0
	}
	return 128 << enum
}

// mtuEnum is the inverse of mtuBytes and rounds down. It returns 0 below 256 bytes.
func mtuEnum(bytes int) uint32 {
	for e := uint32(5); e > 0; e-- {
		if bytes >= mtuBytes(e) {
			return e
		}
	}
	return 0
}

var (
	linkLanes = map[uint32]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2} // by active_width
	// laneSpeeds are the Gbit/s of a lane by active_speed: SDR, DDR, QDR, FDR10, FDR, EDR, HDR and NDR.
	laneSpeeds = map[uint32]float64{1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14, 32: 25, 64: 50, 128: 100}
)

// linkSpeed converts active_width and active_speed of ibv_port_attr (ibv_query_port(3)) to
// the number of lanes and the Gbit/s of all lanes together.
func linkSpeed(width, speed uint32) (lanes int, gbps float64) {
	lanes = linkLanes[width]
	return lanes, laneSpeeds[speed] * float64(lanes)
}

// makeEvent returns an Event of type t with element in the field for that type.
func makeEvent(t fabric.EventType, element uint32) fabric.Event {
	e := fabric.Event{Type: t}
	switch t {
	case fabric.EventCQErr:
		e.CQ = element
	case fabric.EventQPFatal, fabric.EventQPReqErr, fabric.EventQPAccessErr, fabric.EventCommEst, fabric.EventSQDrained,
		fabric.EventPathMig, fabric.EventPathMigErr, fabric.EventQPLastWQEReached:
		e.QPN = element
	case fabric.EventPortActive, fabric.EventPortErr, fabric.EventLIDChange, fabric.EventPKeyChange, fabric.EventSMChange,
		fabric.EventClientReregister, fabric.EventGIDChange:
		e.Port = int(element)
	case fabric.EventDeviceFatal, fabric.EventSRQErr, fabric.EventSRQLimitReached, fabric.EventWQFatal:
	}
	return e
}
