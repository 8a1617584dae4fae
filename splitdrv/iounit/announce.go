package iounit

import (
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// announcePauses are those before each announcement of a host but the first, as
// long as its session lasts. One may be lost: a switch that has just seen its
// link come up, or was told of a change of the topology, forwards nothing for a
// moment.
var announcePauses = []time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
}

// maxAnnouncedVLANs bounds the VLANs that a host is announced in. A host that
// takes part in more is hardly one that waits to be found.
const maxAnnouncedVLANs = 16

// How often a host is announced: at once, and in a second in the long run.
const (
	roundBurst = 20
	roundRate  = 1
)

// announcer tells the LAN where a host is that has said that it is up, so that
// switches and bridges learn the way to it before it sends something itself: after
// a fail-over they would send what is for it to another I/O unit for up to five
// minutes.
type announcer struct {
	host      *host
	addresses *addresses
	port      lan.Interface
	rules     *atomic.Pointer[rules]
	lines     *limit.Log
	begin     chan struct{} // of capacity one: from the start again
	rounds    *rate.Limiter
	frames    atomic.Uint64 // sent
}

func newAnnouncer(
	h *host, addrs *addresses, port lan.Interface, rules *atomic.Pointer[rules], lines *limit.Log,
) *announcer {
	return &announcer{
		host: h, addresses: addrs, port: port, rules: rules, lines: lines,
		begin: make(chan struct{}, 1), rounds: rate.NewLimiter(roundRate, roundBurst),
	}
}

// now announces the host at once, and has run do it again from the start.
func (a *announcer) now() {
	a.round()
	select {
	case a.begin <- struct{}{}:
	default:
	}
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

// round announces all addresses of the host, and its own one in its VLANs too,
// unless that was done so often just now that only a host can mean it which says
// on and on that it is here: everybody on the LAN gets these frames, and no rate of
// the policy bounds them. The repetitions of the last word come later than that.
func (a *announcer) round() {
	if !a.rounds.Allow() {
		return
	}
	// Without services.mu, which whoever sets the port up holds.
	r := a.rules.Load()
	if !r.host.TaggedOnly {
		a.send(r.mac, 0)
		for _, m := range r.further {
			a.send(m, 0)
		}
	}
	if r.receive.Len() <= maxAnnouncedVLANs {
		for v := range r.receive.All() {
			a.send(r.mac, v)
		}
	}
}

// send announces an address, unless another host has it too: which of them it is
// to be reached by, only their own frames say.
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
	shortest   = 60 // bytes of an Ethernet frame without its checksum
	hwEthernet = 1
)

// announcement is a frame from mac, in a VLAN unless that is 0, that every
// switch floods and nobody answers: a request by reverse ARP (RFC 903) of mac for
// its own protocol address, as hypervisors send for a machine that has moved.
func announcement(mac protocol.MAC, vlan uint16) []byte {
	b := make([]byte, vnet.HdrLen, vnet.HdrLen+shortest+vnet.TagLen)
	b = append(b, broadcast[:]...)
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
