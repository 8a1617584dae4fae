package paths

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// This is a simulation of two hosts with some flows of frames between them. Each flow uses a queue
// of the sender's netdevice and, behind the I/O unit, a queue of the receiver's. A random number
// generator chooses the order of all steps, so that everything happens in every possible order.

// simHost is one of the two hosts.
type simHost struct {
	name     string
	mac      protocol.MAC
	split    *Split
	devices  []*device
	uplinks  []*sender
	sent     []uint32   // by flow: frames sent
	got      []uint32   // by flow: frames received from the other host
	toUnit   [][][]byte // by queue: frames in flight to the I/O unit
	fromUnit [][][]byte // by queue: frames in flight from the I/O unit

	path     *Path
	reader   *sender  // sender of the direct connection
	read     [][]byte // frames that reader has read and not sent
	onTheWay [][]byte // frames in flight on the direct connection
	probed   bool     // the peer's probes have arrived
	arrived  bool     // the peer's markers have arrived
	told     bool     // the peer was told by the control channel
	over     bool     // the path is being left
}

// world has the two hosts.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	ends    [2]*simHost
	changes int
	over    bool   // the applications send no more
	paths   byte   // number of opened paths
	ways    [2]int // numbers of frames delivered through the I/O unit, and directly
}

const flows = 6

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1))}
	for i := range w.ends {
		e := &simHost{name: fmt.Sprint("host ", i), mac: protocol.MAC{2, 0, 0, 0, 0, byte(i + 1)},
			sent: make([]uint32, flows),
			got:  make([]uint32, flows)}
		queues := 1 + w.rnd.IntN(3)
		e.split, e.devices = newSplit(t, queues, Config{Ring: minRing})
		e.toUnit, e.fromUnit = make([][][]byte, queues), make([][][]byte, queues)
		for _, p := range e.split.Uplink() {
			e.uplinks = append(e.uplinks, newSender(p, 8))
		}
		w.ends[i] = e
	}
	return w
}

// step does one random step for one of the hosts.
func (w *world) step() {
	which := w.rnd.IntN(2)
	e, peer := w.ends[which], w.ends[1-which]
	q := w.rnd.IntN(len(e.devices))
	switch w.rnd.IntN(16) {
	case 0, 1, 2: // an application sends
		for range w.rnd.IntN(5) {
			if !w.over && w.outstanding(e, peer) < 300 {
				w.send(e, peer)
			}
		}
	case 3, 4: // the sender of a data channel has credits
		e.toUnit[q] = append(e.toUnit[q], e.uplinks[q].read(w.t, 1+w.rnd.IntN(8))...)
	case 5: // the sender of a data channel has no credits any more
		e.uplinks[q].port.(messaging.SharedPort).Release()
		e.split.queues[q].graceEnds()
	case 6, 7:
		w.switched(e, peer, q)
	case 8, 9:
		w.delivered(e, q)
	case 10, 11: // the sender of the direct connection has credits
		if e.path != nil && len(e.read) == 0 {
			e.read = e.reader.read(w.t, 1+w.rnd.IntN(8))
		}
	case 12:
		if e.path != nil {
			e.path.Port().(messaging.SharedPort).Release()
			e.split.queues[q].graceEnds()
		}
	case 13: // the sender of the direct connection posts some frames
		n := w.rnd.IntN(len(e.read) + 1)
		e.onTheWay = append(e.onTheWay, e.read[:n]...)
		e.read = e.read[n:]
	case 14:
		w.deliveredDirectly(e, peer)
	case 15:
		w.change(e, peer)
	}
}

// send has an application send a frame of a random flow.
func (w *world) send(e, peer *simHost) {
	flow := w.rnd.IntN(flows)
	f := frame(peer.mac, e.mac, 60+w.rnd.IntN(200))
	f[vnet.MinFrame] = byte(flow)
	binary.BigEndian.PutUint32(f[vnet.MinFrame+1:], e.sent[flow])
	e.sent[flow]++
	e.devices[flow%len(e.devices)].send(f)
}

// switched has the I/O unit move frames of a queue to a queue of the receiver. Markers go to all
// queues of the receiver, unless they are lost.
func (w *world) switched(e, peer *simHost, q int) {
	for range w.rnd.IntN(16) {
		if len(e.toUnit[q]) == 0 {
			return
		}
		f := e.toUnit[q][0]
		e.toUnit[q] = e.toUnit[q][1:]
		if protocol.IsMarker(f) {
			for o := range peer.fromUnit {
				if w.rnd.IntN(10) > 0 {
					peer.fromUnit[o] = append(peer.fromUnit[o], f)
				}
			}
			continue
		}
		o := int(f[vnet.MinFrame]) * 7 % len(peer.fromUnit)
		peer.fromUnit[o] = append(peer.fromUnit[o], f)
	}
}

// delivered has the receiver of a data channel write frames from the I/O unit.
func (w *world) delivered(e *simHost, q int) {
	n := w.rnd.IntN(len(e.fromUnit[q]) + 1)
	w.ways[0] += n
	e.write(w.t, e.split.Uplink()[q], e.fromUnit[q][:n])
	e.fromUnit[q] = e.fromUnit[q][n:]
}

// deliveredDirectly has the receiver of the direct connection write frames.
func (w *world) deliveredDirectly(e, peer *simHost) {
	n := w.rnd.IntN(len(e.onTheWay) + 1)
	if n > 0 {
		w.ways[1] += n
		peer.write(w.t, peer.path.Port(), e.onTheWay[:n])
		e.onTheWay = e.onTheWay[n:]
	}
}

// write writes frames to a port, and checks the order of the frames in the netdevice.
func (e *simHost) write(t *testing.T, port messaging.Port, frames [][]byte) {
	t.Helper()
	ops := make([]vnet.WriteOp, len(frames))
	for i, f := range frames {
		ops[i].Head = f
	}
	if n := port.WriteFrames(ops); n != len(ops) {
		t.Fatalf("%d frames of %d were written", n, len(ops))
	}
	for _, d := range e.devices {
		for _, f := range d.received() {
			if protocol.IsMarker(f) {
				t.Fatal("a marker was written to the netdevice")
			}
			flow, number := f[vnet.MinFrame], binary.BigEndian.Uint32(f[vnet.MinFrame+1:])
			if number != e.got[flow] {
				t.Fatalf("%s has frame %d of flow %d, and not %d", e.name, number, flow, e.got[flow])
			}
			e.got[flow]++
		}
	}
}

// change changes the state of the path between the two hosts, or sends its markers again.
func (w *world) change(e, peer *simHost) {
	switch {
	case e.path == nil:
		w.open()
	case e.over && (len(e.onTheWay) > 0 || len(peer.onTheWay) > 0): // frames are in flight
	case e.over:
		for _, o := range w.ends {
			left := &messaging.Unsent{Frames: [][][]byte{o.read}}
			w.changes++
			o.path.Close(left)
			o.path, o.read, o.over, o.told, o.probed, o.arrived = nil, nil, false, false, false, false
		}
	case w.rnd.IntN(25) == 0:
		w.changes++
		e.path.Leave()
		peer.path.Leave()
		e.over, peer.over = true, true
	case e.path.state == opening && peer.probed:
		w.changes++
		e.path.Enter()
	case e.path.state == held && peer.arrived:
		w.changes++
		e.path.Confirm()
	default:
		e.path.Mark()
	}
}

// pathNonces returns the nonces of one end of a path.
func pathNonces(path byte, end int) Nonces {
	return Nonces{Probe: [16]byte{path, byte(end), 1}, Marker: [16]byte{path, byte(end)}}
}

// open opens a path at both hosts.
func (w *world) open() {
	w.paths++
	for i, e := range w.ends {
		peer := w.ends[1-i]
		p, err := e.split.Open(Peer{MACs: []protocol.MAC{peer.mac}, Own: []protocol.MAC{e.mac},
			Out: pathNonces(w.paths, i), In: pathNonces(w.paths, 1-i), MTU: 1500,
			Probed: func() { e.probed = true }, Arrived: func() { e.arrived = true }})
		if err != nil {
			w.t.Fatal(err)
		}
		e.path, e.reader = p, newSender(p.Port(), 8)
	}
}

// settle ends the path and the applications, and does steps until all frames have arrived.
func (w *world) settle() {
	w.over = true
	for range 50000 {
		if w.ends[0].path != nil {
			w.ends[0].path.Leave()
			w.ends[1].path.Leave()
			w.ends[0].over, w.ends[1].over = true, true
		}
		if w.step(); w.ends[0].path == nil && w.done() {
			return
		}
	}
}

func (w *world) done() bool {
	return w.outstanding(w.ends[0], w.ends[1]) == 0 && w.outstanding(w.ends[1], w.ends[0]) == 0
}

// outstanding returns the number of frames from e that have not arrived at peer.
func (w *world) outstanding(e, peer *simHost) (n int) {
	for i := range e.sent {
		n += int(e.sent[i] - peer.got[i])
	}
	return n
}

// TestOrder expects every frame to arrive once and in order while the path between two hosts
// changes many times.
func TestOrder(t *testing.T) {
	total, ways := 0, [2]int{}
	for seed := range uint64(16) {
		w := newWorld(t, seed)
		for range 8000 {
			w.step()
		}
		changes := w.changes
		if w.settle(); !w.done() {
			t.Fatalf("seed %d: sent %v, %v; got %v, %v", seed, w.ends[0].sent, w.ends[1].sent, w.ends[1].got, w.ends[0].got)
		}
		for _, e := range w.ends {
			if c := e.split.Counts(); c.UplinkFull > 0 {
				t.Fatalf("seed %d: %s has dropped %d frames", seed, e.name, c.UplinkFull)
			}
		}
		total += changes
		ways[0] += w.ways[0]
		ways[1] += w.ways[1]
	}
	t.Logf("%d changes; %d frames through the I/O unit, %d directly", total, ways[0], ways[1])
	if total < 1000 || ways[0] < 1000 || ways[1] < 1000 {
		t.Error("too little has happened")
	}
}
