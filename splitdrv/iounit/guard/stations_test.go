package guard

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// from returns a frame from a station.
func from(mac protocol.MAC, vlans ...uint16) []byte {
	return frame(Broadcast, mac, 60, vlans...)
}

// numbered returns a different address for each number.
func numbered(i int) (m protocol.MAC) {
	m[0], m[1] = 2, 9
	binary.BigEndian.PutUint32(m[2:], uint32(i))
	return m
}

// TestStations learns the senders of frames, each in its VLAN, until they are silent for too long.
func TestStations(t *testing.T) {
	h := &hand{at: time.Hour}
	s := newStations(h.now)
	s.used.Store(true)
	knows := func(m protocol.MAC, vlans ...uint16) bool {
		return s.knows(frame(m, own, 60, vlans...), s.tick())
	}
	if knows(machine) || knows(protocol.MAC{}) {
		t.Error("a station is known before it has sent anything")
	}
	s.learn(from(machine), s.tick())
	s.learn(from(other, 5), s.tick())
	s.learn(from(protocol.MAC(wanted)), s.tick())
	if !knows(machine) || !knows(other, 5) || knows(other) || knows(machine, 5) || knows(card) ||
		knows(protocol.MAC(wanted)) {
		t.Errorf("known: %t, %t, in the wrong VLAN %t, %t, another one %t, a group %t", knows(machine), knows(other, 5), knows(other),
			knows(machine, 5), knows(card), knows(protocol.MAC(wanted)))
	}
	h.at += 270 * time.Second
	if !knows(machine) {
		t.Error("forgotten too early")
	}
	s.learn(from(machine), s.tick())
	h.at += 270 * time.Second
	if !knows(machine) || knows(other, 5) {
		t.Errorf("of a station that sends %t is known, of a silent one %t", knows(machine), knows(other, 5))
	}
	h.at += 290 * time.Second
	if knows(machine) {
		t.Error("a station is known for longer than by a bridge")
	}
	// As many as a bridge in a large network has.
	const many = 4000
	for i := range many {
		s.learn(from(numbered(i)), s.tick())
	}
	known := 0
	for i := range many {
		if knows(numbered(i)) {
			known++
		}
		if knows(numbered(many + i)) {
			t.Fatal("a station is taken for another one")
		}
	}
	if known < many*99/100 {
		t.Errorf("%d of %d stations are known", known, many)
	}
	// A flood of addresses displaces others, and these are learned again.
	for i := range 1 << 18 {
		s.learn(from(numbered(1<<24+i)), s.tick())
	}
	s.learn(from(machine), s.tick())
	if !knows(machine) {
		t.Error("no station is learned any more")
	}
}

// TestStationsUnused expects nothing to be learned while no host has a limit, nor without a bridge.
func TestStationsUnused(t *testing.T) {
	s := newStations((&hand{at: time.Hour}).now)
	s.learn(from(machine), s.tick())
	s.used.Store(true)
	if s.knows(frame(machine, own, 60), s.tick()) {
		t.Error("learned")
	}
	var none *Stations
	none.learn(from(machine), none.tick())
}

// TestStationsAtOnce has four queues learn the same stations. No two of these share a set, which has
// room for what four queues store at a time, so each must be known.
func TestStationsAtOnce(t *testing.T) {
	s := newStations((&hand{at: time.Hour}).now)
	s.used.Store(true)
	var macs []protocol.MAC
	taken := map[*[ways]atomic.Uint64]bool{}
	for i := 0; len(macs) < 1000; i++ {
		if set, _ := s.place(numbered(i), 0); !taken[set] {
			taken[set] = true
			macs = append(macs, numbered(i))
		}
	}
	var wg sync.WaitGroup
	for range ways {
		wg.Go(func() {
			for i := range 10_000 {
				s.learn(from(macs[i%len(macs)]), s.tick())
				if m := macs[rand.IntN(len(macs))]; !s.knows(frame(m, own, 60), s.tick()) && i > len(macs) {
					t.Errorf("station %v is not known after %d", m, i)
				}
			}
		})
	}
	wg.Wait()
	for _, m := range macs {
		if !s.knows(frame(m, own, 60), s.tick()) {
			t.Fatalf("station %v is not known", m)
		}
	}
}

// TestUnknownRate has a host send to stations that nobody has heard of. A bridge copies such frames
// to all ports, so no more of them may pass than broadcasts. Those for stations that have sent a
// frame must pass, whether that came from the LAN or went there.
func TestUnknownRate(t *testing.T) {
	h := &hand{at: time.Hour}
	known := newStations(h.now)
	known.used.Store(true)
	p, q := newPoliced(hostWith("all"), groupLimited(policy.MinPPS, h), func(r *Rules) {
		r.toUnknown = newBucket(bounds{packets: policy.MinPPS}, h.now)
		r.toUnknown.save()
	})
	p.known = known
	send := func(n int, f func(i int) []byte) (passed int) {
		t.Helper()
		q.Out = nil
		for i := range n {
			if err := p.WriteFrame(f(i)); err != nil {
				t.Fatal(err)
			}
		}
		return len(q.Out)
	}
	const many = 3 * BurstPackets
	to := func(m protocol.MAC, vlans ...uint16) func(int) []byte {
		return func(int) []byte { return frame(m, own, 60, vlans...) }
	}
	if n := send(many, func(i int) []byte { return frame(numbered(i), own, 60) }); n != BurstPackets {
		t.Errorf("%d frames to unknown stations passed", n)
	}
	if n := send(many, to(machine)); n != 0 {
		t.Errorf("%d frames to one unknown station passed", n)
	}
	if why := p.refused.List(); len(why) != 1 || !strings.Contains(why[0], "`max-tx-group-pps`") {
		t.Errorf("dropped because %q", why)
	}
	if n := send(many, to(protocol.MAC(Broadcast))); n != BurstPackets {
		t.Errorf("%d broadcasts passed after that", n)
	}
	slot := make([]byte, 2000)
	q.In = [][]byte{frame(own, machine, 60), frame(other, card, 60, 7)}
	for range 2 {
		if _, err := p.ReadFrame(slot); err != nil {
			t.Fatal(err)
		}
	}
	if n := send(many, to(machine)); n != many {
		t.Errorf("%d frames passed to a station that has sent one", n)
	}
	if n := send(many, to(machine, 5)); n != 0 {
		t.Errorf("%d frames passed to its address in another VLAN", n)
	}
	if n := send(many, to(card, 7)); n != many {
		t.Errorf("%d frames passed in the VLAN of a station", n)
	}
	// Another host of the I/O unit.
	b, _ := newPoliced(hostWith("all"), func(r *Rules) { r.MAC = other })
	b.known = known
	if n := send(1, to(other)); n != 0 {
		t.Error("a host that has sent nothing is known")
	}
	if err := b.WriteFrame(frame(machine, other, 60)); err != nil {
		t.Fatal(err)
	}
	if n := send(many, to(other)); n != many {
		t.Errorf("%d frames passed to a host that has sent one", n)
	}
	h.at += time.Hour
	if n := send(many, to(machine)); n != BurstPackets {
		t.Errorf("%d frames passed to a station that has been silent for long", n)
	}
	p.known = nil
	if n := send(many, to(machine)); n != many {
		t.Errorf("%d frames passed on a LAN that is no bridge", n)
	}
}

// TestUnknownRateHeld writes frames to unknown stations to a queue that is often full. Frames that
// wait must not count each time that they are tried.
func TestUnknownRateHeld(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	h := &hand{at: time.Hour}
	p, q := newPoliced(hostWith("all"), func(r *Rules) {
		r.toUnknown = newBucket(bounds{packets: policy.MinPPS}, h.now)
		r.toUnknown.save()
	})
	p.known = newStations(h.now)
	p.known.used.Store(true)
	var frames [][]byte
	for i := range BurstPackets {
		frames = append(frames, frame(numbered(i), own, 60))
	}
	tries := 0
	for ops := batch(random, frames...); len(ops) > 0; tries++ {
		q.Room = 1 + random.IntN(3)
		ops = ops[p.WriteFrames(ops):]
	}
	if len(q.Out) != len(frames) || tries < BurstPackets/3 {
		t.Errorf("%d of %d frames written in %d tries", len(q.Out), len(frames), tries)
	}
}
