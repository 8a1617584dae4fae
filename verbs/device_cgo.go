package verbs

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -libverbs
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/inline"
	"github.com/splitnic/splitnic/internal/numa"
)

// Devices lists the RDMA devices of the machine.
//
// Implements: struct ibv_device **ibv_get_device_list(int *num_devices)
func Devices() ([]DeviceInfo, error) {
	var list **C.struct_ibv_device
	var n C.int
	if no := errno(C.snv_list(&list, &n)); no != 0 {
		return nil, &OpError{Op: "list RDMA devices", Err: no, Hint: openHints[no]}
	}
	defer C.ibv_free_device_list(list)
	devs := make([]DeviceInfo, 0, int(n))
	for _, d := range unsafe.Slice(list, int(n)) {
		name := C.GoString(C.ibv_get_device_name(d))
		devs = append(devs, DeviceInfo{Name: name, Driver: driverIn(classDir, name)})
	}
	return devs, nil
}

// Context is an open RDMA device. It implements fabric.Device, and is safe for concurrent use.
// It has a method for each verb that queries a device or creates an object on it.
type Context struct {
	name   string
	driver string
	cfg    config
	attr   DeviceAttr
	limits fabric.Limits
	family family // of PDs
	inline inline.Limits

	closing sync.Mutex // one Close at a time

	events  eventQueue
	changes atomic.Uint64 // of the port, its GIDs and P_Keys, that Refresh was told of
	gone    atomic.Bool   // the device has refused to destroy an object because it is gone

	ctx *C.struct_ibv_context // nil once closed; used between family.enter and leave
}

var _ fabric.Device = (*Context)(nil)

// Open opens the RDMA device with the given name. Unless an option sets the GID, it is chosen
// by the rules of ChooseGID when the first queue pair of a domain is created.
//
// Implements: struct ibv_context *ibv_open_device(struct ibv_device *device)
func Open(name string, opts ...Option) (*Context, error) {
	c := &Context{name: name, driver: driverIn(classDir, name), cfg: defaultConfig()}
	for _, o := range opts {
		o(&c.cfg)
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	if no := errno(C.snv_open(cname, &c.ctx)); no != 0 {
		no = openErrno(no, charDevOf(name))
		return nil, &OpError{Op: "open device", Device: name, Err: no, Hint: openHints[no]}
	}
	err := suitable(name, transport(c.ctx.device.transport_type))
	if err == nil {
		err = c.init()
	}
	if err != nil {
		C.ibv_close_device(c.ctx)
		return nil, err
	}
	return c, nil
}

// transport is what the queue pairs of a device speak, with the values of enum
// ibv_transport_type.
type transport int32

const (
	transportInfiniBand  transport = C.IBV_TRANSPORT_IB          // also RoCE
	transportIWARP       transport = C.IBV_TRANSPORT_IWARP       // Internet Wide Area RDMA Protocol
	transportUSNIC       transport = C.IBV_TRANSPORT_USNIC       // Cisco's, without RDMA
	transportUSNICUDP    transport = C.IBV_TRANSPORT_USNIC_UDP   // the same over UDP
	transportUnspecified transport = C.IBV_TRANSPORT_UNSPECIFIED // such as Amazon's EFA
)

// suitable returns an error if the queue pairs of a device with this transport cannot have
// sessions, which need reliable connections without a connection manager, and writes with
// immediate data.
func suitable(device string, t transport) error {
	var why string
	switch t {
	case transportInfiniBand:
		return nil
	case transportIWARP:
		why = "iWARP has no writes with immediate data, and connects by rdma_cm only"
	case transportUSNIC, transportUSNICUDP:
		why = "usNIC has no RDMA"
	case transportUnspecified:
		why = "its protocol is its own, as that of EFA, without reliable connections"
	default:
		why = fmt.Sprintf("its transport %d is unknown", t)
	}
	return &OpError{Op: "open device", Device: device, Err: fmt.Errorf("%w: %s", fabric.ErrUnsupported, why),
		Hint: "use an InfiniBand or RoCE adapter, its RoCE mode if it has one, or Soft-RoCE"}
}

func (c *Context) init() error {
	if no := c.events.open(c.ctx); no != 0 {
		return opErr(c.name, "make the event descriptor non-blocking", no, "")
	}
	var a C.struct_ibv_device_attr
	if no := errno(C.ibv_query_device(c.ctx, &a)); no != 0 {
		return opErr(c.name, "query device", no, "")
	}
	c.attr = DeviceAttr{
		Firmware:    C.GoString(&a.fw_ver[0]),
		Ports:       int(a.phys_port_cnt),
		MemWindow2A: a.device_cap_flags&C.IBV_DEVICE_MEM_WINDOW_TYPE_2A != 0,
		MemWindow2B: a.device_cap_flags&C.IBV_DEVICE_MEM_WINDOW_TYPE_2B != 0,
	}
	var count, period C.uint16_t
	if no := errno(C.snv_query_moderation(c.ctx, &count, &period)); no != 0 {
		return opErr(c.name, "query device", no, "")
	}
	c.attr.ModerationCount, c.attr.ModerationPeriod = int(count), time.Duration(period)*time.Microsecond
	p, err := c.Port(c.cfg.port)
	if err != nil {
		return err
	}
	c.limits = fabric.Limits{
		MaxQPWR:         int(a.max_qp_wr),
		MaxSGE:          min(int(a.max_sge), C.SNV_MAX_SGE),
		MaxRdAtomic:     int(a.max_qp_init_rd_atom),
		MaxDestRdAtomic: int(a.max_qp_rd_atom),
		Moderation:      c.attr.ModerationCount > 0,
		MaxCQE:          int(a.max_cqe),
		CompVectors:     int(c.ctx.num_comp_vectors),
		MaxMsg:          p.MaxMsg,
		Windows:         a.max_mw > 0 && (c.attr.MemWindow2A || c.attr.MemWindow2B),
		WindowBounds:    windowBounds(c.driver),
		NUMANode:        numa.OfDevice(filepath.Join(classDir, c.name)),
	}
	return nil
}

// Name implements fabric.Device.
func (c *Context) Name() string { return c.name }

// Driver returns the kernel driver of the device, such as mlx5_core or rdma_rxe, or "" if it
// is unknown.
func (c *Context) Driver() string { return c.driver }

// Limits implements fabric.Device.
func (c *Context) Limits() fabric.Limits { return c.limits }

// Attr returns the attributes that the device had when it was opened.
//
// Implements: int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr)
func (c *Context) Attr() DeviceAttr { return c.attr }

// Port queries a port. Ports are counted from 1.
//
// Implements: int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
func (c *Context) Port(port int) (PortAttr, error) {
	op := fmt.Sprintf("query port %d", port)
	if !c.family.enter() {
		return PortAttr{}, &OpError{Op: op, Device: c.name, Err: net.ErrClosed}
	}
	defer c.family.leave()
	if port < 1 || port > c.attr.Ports {
		return PortAttr{}, opErr(c.name, op, syscall.EINVAL, fmt.Sprintf("the device has ports 1 … %d", c.attr.Ports))
	}
	var a C.struct_snv_port_attr
	if no := errno(C.snv_query_port(c.ctx, C.uint8_t(port), &a)); no != 0 {
		return PortAttr{}, opErr(c.name, op, no, "")
	}
	p := PortAttr{
		Port:      port,
		State:     PortState(a.state),
		LinkLayer: LinkLayer(a.link_layer),
		MaxMTU:    mtuBytes(uint32(a.max_mtu)),
		ActiveMTU: mtuBytes(uint32(a.active_mtu)),
		MaxMsg:    int(a.max_msg_sz),
		GIDs:      int(a.gid_tbl_len),
		PKeys:     int(a.pkey_tbl_len),
		LID:       uint16(a.lid),
		NeedsGRH:  a.grh_required != 0,
	}
	p.Lanes, p.Speed = linkSpeed(uint32(a.active_width), uint32(a.active_speed))
	return p, nil
}

// PortNumber returns the number of the port of the queue pairs.
func (c *Context) PortNumber() int { return c.cfg.port }

// PortMTU returns the active MTU of the port of the queue pairs, in bytes.
func (c *Context) PortMTU() (int, error) {
	p, err := c.Port(c.cfg.port)
	return p.ActiveMTU, err
}

// Ports queries all ports.
func (c *Context) Ports() ([]PortAttr, error) {
	ports := make([]PortAttr, 0, c.attr.Ports)
	for i := 1; i <= c.attr.Ports; i++ {
		p, err := c.Port(i)
		if err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// QueryGIDTable reads the valid entries of the GID tables of all ports, with
// the netdevices of this network namespace and the prefixes of their addresses.
//
// Implements: ssize_t ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, uint32_t flags)
func (c *Context) QueryGIDTable() ([]GIDEntry, error) {
	const op = "query GID table"
	ports, err := c.Ports()
	if err != nil {
		return nil, err
	}
	if !c.family.enter() {
		return nil, &OpError{Op: op, Device: c.name, Err: net.ErrClosed}
	}
	defer c.family.leave()
	size := 0
	for _, p := range ports {
		size += p.GIDs
	}
	if size == 0 {
		return nil, nil
	}
	raw := make([]C.struct_ibv_gid_entry, size)
	var n C.int
	if no := errno(C.snv_query_gids(c.ctx, &raw[0], C.int(size), &n)); no != 0 {
		return nil, opErr(c.name, op, no, "")
	}
	table := make([]GIDEntry, 0, int(n))
	netdevs := make(map[int]netdev) // a cache: many entries share a netdevice
	for _, r := range raw[:n] {
		e := GIDEntry{
			Index:       int(r.gid_index),
			Port:        int(r.port_num),
			Type:        GIDType(r.gid_type),
			GID:         GID(r.gid),
			NetdevIndex: int(r.ndev_ifindex),
		}
		nd, ok := netdevs[e.NetdevIndex]
		if !ok {
			nd = netdevByIndex(e.NetdevIndex)
			netdevs[e.NetdevIndex] = nd
		}
		e.Netdev, e.NetdevPrefix = nd.name, nd.prefixOf(e.GID.Addr())
		table = append(table, e)
	}
	return table, nil
}

// ChooseGID returns the GID that the queue pairs of the next domain will use, and the reason
// for the choice.
func (c *Context) ChooseGID() (GIDEntry, string, error) {
	port, err := c.Port(c.cfg.port)
	if err != nil {
		return GIDEntry{}, "", err
	}
	table, err := c.QueryGIDTable()
	if err != nil {
		return GIDEntry{}, "", err
	}
	if c.cfg.gidIndex > maxGIDIndex {
		return GIDEntry{}, "", opErr(c.name, fmt.Sprintf("choose GID at index %d", c.cfg.gidIndex), syscall.EINVAL,
			fmt.Sprintf("queue pairs can use indices 0 … %d", maxGIDIndex))
	}
	if c.cfg.gidIndex >= 0 {
		for _, e := range table {
			if e.Index == c.cfg.gidIndex && e.Port == c.cfg.port {
				return e, e.String() + ", as asked for", nil
			}
		}
		err := fmt.Errorf("port %d: %w: nothing at index %d; %s", c.cfg.port, ErrNoGID, c.cfg.gidIndex,
			gidFix(table, GIDHint{}))
		return GIDEntry{}, "", &OpError{Op: "choose GID", Device: c.name, Err: err}
	}
	e, why, err := chooseGID(port, table, c.cfg.hint)
	if err != nil {
		return GIDEntry{}, "", &OpError{Op: "choose GID", Device: c.name, Err: err}
	}
	return e, why, nil
}

// PKeys reads the partition key table of a port. Ports are counted from 1. An entry whose
// lower 15 bits are 0 is invalid.
//
// Implements: int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
func (c *Context) PKeys(port int) ([]uint16, error) {
	p, err := c.Port(port)
	if err != nil {
		return nil, err
	}
	op := fmt.Sprintf("query partition keys of port %d", port)
	if !c.family.enter() {
		return nil, &OpError{Op: op, Device: c.name, Err: net.ErrClosed}
	}
	defer c.family.leave()
	table := make([]uint16, p.PKeys)
	for i := range table {
		var key C.uint16_t
		if no := errno(C.snv_query_pkey(c.ctx, C.uint8_t(port), C.int(i), &key)); no != 0 {
			return nil, opErr(c.name, op, no, "")
		}
		table[i] = uint16(key)
	}
	return table, nil
}

// ChoosePKey returns the partition key of the queue pairs of the next domain, as an index
// into the port's table.
func (c *Context) ChoosePKey() (int, error) {
	if c.cfg.pkey == 0 {
		return 0, nil
	}
	table, err := c.PKeys(c.cfg.port)
	if err != nil {
		return 0, err
	}
	index, err := choosePKey(table, c.cfg.pkey)
	if err != nil {
		return 0, &OpError{Op: fmt.Sprintf("choose partition key of port %d", c.cfg.port), Device: c.name, Err: err}
	}
	return index, nil
}

// WaitEvent consumes one asynchronous event, which it has acknowledged. It sleeps in Go's poller
// until there is one, ctx is done or the device is closed.
//
// Implements: int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
func (c *Context) WaitEvent(ctx context.Context) (fabric.Event, error) {
	ev, err := c.events.wait(ctx)
	if err != nil {
		return fabric.Event{}, &OpError{Op: "wait for an asynchronous event", Device: c.name, Err: err}
	}
	return ev, nil
}

// Close closes all objects created on the device, and then the device. It is idempotent, and
// can be called again after a failure.
//
// Implements: int ibv_close_device(struct ibv_context *context)
func (c *Context) Close() error {
	if err := c.family.close(); err != nil {
		return err
	}
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.ctx == nil {
		return nil
	}
	if err := c.events.close(); err != nil {
		return &OpError{Op: "close device", Device: c.name, Err: err}
	}
	if r := C.ibv_close_device(c.ctx); r != 0 && !c.gone.Load() {
		return opErr(c.name, "close device", syscall.EIO, "")
	}
	c.ctx = nil
	return nil
}
