package iounit

import (
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/vnet"
)

// announcePauses are the pauses before each repetition of a host's announcement. An
// announcement can be lost: a switch forwards nothing for a moment after its link came up or
// the topology changed.
var announcePauses = []time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
}

// maxAnnouncedVLANs is the largest number of VLANs of a host that is announced in VLANs. A
// host in more VLANs is probably a router or a bridge.
const maxAnnouncedVLANs = 16

// The limit for announcements of a host: at once, and per second in the long run.
const (
	roundBurst = 20
	roundRate  = 1
)

// announcer announces a host in the LAN after the host has reported that it is up, so that
// switches and bridges learn its port before it sends a frame. Otherwise, after a fail-over,
// they could send frames for the host to another I/O unit for up to five minutes.
type announcer struct {
	host      *host
	addresses *addresses
	port      lan.Interface
	guard     *guard.Guard
	lines     *limit.Log
	begin     chan struct{} // restarts the repetitions; capacity one
	rounds    *rate.Limiter
	frames    atomic.Uint64 // frames sent
}

func newAnnouncer(
	h *host, addrs *addresses, port lan.Interface, guard *guard.Guard, lines *limit.Log,
) *announcer {
	return &announcer{
		host: h, addresses: addrs, port: port, guard: guard, lines: lines,
		begin: make(chan struct{}, 1), rounds: rate.NewLimiter(roundRate, roundBurst),
	}
}

// now announces the host, and makes run repeat that.
func (a *announcer) now() {
	a.round()
	wake.Up(a.begin)
}

// run repeats announcements until done is closed.
func (a *announcer) run(done <-chan struct{}) {
	next := len(announcePauses)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-a.begin:
			next = 0
		case <-timer.C:
			if next < len(announcePauses) {
				a.round()
				next++
			}
		}
		if next < len(announcePauses) {
			timer.Reset(announcePauses[next])
		}
	}
}

// round announces all addresses of the host, and its own one in its VLANs too. It does
// nothing beyond the limit, which only a host exceeds that reports again and again that it
// is up: every station of the LAN gets these frames, and no rate of the policy limits them.
// The repetitions after the last report are later than that.
func (a *announcer) round() {
	if !a.rounds.Allow() {
		return
	}
	// Without services.mu, which the caller may hold.
	r := a.guard.Rules()
	if !r.Host.TaggedOnly {
		a.send(r.MAC, 0)
		for m := range r.Further.All() {
			a.send(m, 0)
		}
	}
	if r.Receive.Len() <= maxAnnouncedVLANs {
		for v := range r.Receive.All() {
			a.send(r.MAC, v)
		}
	}
}

// send announces an address, unless another host has it too: then only the hosts' own frames
// show which of them is active.
func (a *announcer) send(mac protocol.MAC, vlan uint16) {
	if a.addresses.shared(a.host, mac) {
		return
	}
	if err := a.port.Announce(announcement(mac, vlan)); err != nil {
		a.lines.Log(a.host.log, slog.LevelDebug, "host not announced", "mac", mac, "vlan", vlan, "error", err)
		return
	}
	a.frames.Add(1)
}

const (
	rarpAsk    = 3  // request reverse
	shortest   = 60 // least bytes of an Ethernet frame without its checksum
	hwEthernet = 1
)

// announcement returns a frame from mac, in a VLAN unless that is 0, that every switch
// floods and no station answers: a reverse ARP request (RFC 903) of mac for its own protocol
// address, as hypervisors send for a machine that has moved.
func announcement(mac protocol.MAC, vlan uint16) []byte {
	b := make([]byte, vnet.HdrLen, vnet.HdrLen+shortest+vnet.TagLen)
	b = append(b, guard.Broadcast[:]...)
	b = append(b, mac[:]...)
	if vlan != 0 {
		b = binary.BigEndian.AppendUint16(b, vnet.EtherVLAN)
		b = binary.BigEndian.AppendUint16(b, vlan)
	}
	for _, v := range []uint16{vnet.EtherRARP, hwEthernet, 0x0800, 6<<8 | 4, rarpAsk} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(b, mac[:]...)
	b = append(b, 0, 0, 0, 0)
	b = append(b, mac[:]...)
	b = append(b, 0, 0, 0, 0)
	return append(b, make([]byte, max(0, vnet.HdrLen+shortest-len(b)))...)
}
