package guard

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// groupLimited returns a change of rules that limits packets to groups, with clock h.
func groupLimited(packets int64, h *hand) func(*Rules) {
	return func(r *Rules) {
		r.toGroups = newBucket(bounds{packets: packets}, h.now)
		r.toGroups.save()
	}
}

// TestGroupRate has a host send more frames to groups than it may, among other frames. Those above
// the limit must be dropped, all others must pass in order, and none may wait.
func TestGroupRate(t *testing.T) {
	toGroup := superFrame(14480, 1448) // ten packets
	copy(toGroup[dstAt:], wanted[:])
	// An invalid broadcast frame must not count against the limit.
	bad := slices.Clone(toGroup)
	bad[0] |= 0x80
	for _, tc := range []struct {
		name    string
		frame   []byte
		packets int
	}{
		{"broadcast", frame(Broadcast, own, 60), 1},
		{"multicast", frame(wanted, own, 1500), 1},
		{"in a VLAN", frame(Broadcast, own, 60, 5), 1},
		{"super-frame", toGroup, 10},
	} {
		for _, rate := range []int{policy.MinPPS, 1000, 50_000} {
			h := &hand{at: time.Hour}
			p, q := newPoliced(hostWith("all"), groupLimited(int64(rate), h))
			start, burst := h.at, max(BurstPackets, rate/250)
			sent, passed := 0, 0
			send := func(groups int) {
				t.Helper()
				q.Out = nil
				var frames [][]byte
				for i := range groups {
					single := frame(machine, own, 60)
					single[len(single)-1] = byte(i)
					frames = append(frames, tc.frame, single, bad)
				}
				sent += groups
				if n := p.WriteFrames(batch(rand.New(rand.NewPCG(1, 2)), frames...)); n != len(frames) || p.WriteHold() != 0 {
					t.Fatalf("%d of %d frames done with, held back for %v", n, len(frames), p.WriteHold())
				}
				singles := 0
				for _, f := range q.Out {
					switch {
					case bytes.Equal(f, tc.frame):
						passed += tc.packets
					case f[len(f)-1] == byte(singles):
						singles++
					}
				}
				if singles != groups {
					t.Fatalf("%s, %d/s: %d frames to one station passed in order, of %d", tc.name, rate, singles, groups)
				}
			}
			send(2 * burst)
			if passed < burst || passed >= burst+tc.packets {
				t.Errorf("%s, %d/s: %d packets at once, want %d", tc.name, rate, passed, burst)
			}
			for range 100 {
				h.at += 2 * time.Millisecond
				send(max(2, rate/250))
			}
			took := (h.at - start).Seconds()
			if most := float64(burst) + float64(rate)*took + float64(tc.packets); float64(passed) > most ||
				float64(passed) < most-2*float64(tc.packets) {
				t.Errorf("%s, %d/s: %d packets in %vs, want %.0f", tc.name, rate, passed, took, most)
			}
			var s protocol.Statistics
			var d Dropped
			if p.count(&s, &d); d != (Dropped{GroupRate: uint64(sent - passed/tc.packets)}) ||
				s.TxFrames != uint64(sent+passed/tc.packets) {
				t.Errorf("%s, %d/s: counted %+v, %+v", tc.name, rate, s, d)
			}
			if why := p.refused.List(); len(why) != 1 || !strings.Contains(why[0], "`max-tx-group-pps`") {
				t.Errorf("dropped because %q", why)
			}
		}
	}
}

// TestGroupRateHeld writes broadcasts that wait for another rate limit, to a queue that is often
// full. A waiting frame must not count as sent to a group, however often it is tried. So no frame
// may be dropped or reported as dropped.
func TestGroupRateHeld(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	h := &hand{}
	p, q := newPoliced(hostWith("all"), groupLimited(1000, h),
		func(r *Rules) { r.tx = newBucket(bounds{packets: 900}, h.now) })
	// Only the first two frames of a batch may pass, and the second one has to wait.
	p.rules.Load().toGroups.takeOne(cost{packets: BurstPackets - 2}, false)
	var frames [][]byte
	for i := range 1000 {
		f := frame(Broadcast, own, 60)
		f[len(f)-1] = byte(i)
		frames = append(frames, f)
	}
	tries := 0
	for ops := batch(random, frames...); len(ops) > 0; tries++ {
		q.Room = random.IntN(80)
		n := p.WriteFrames(ops)
		if n < len(ops) && !errors.Is(ops[n].Err, unix.EAGAIN) {
			t.Fatal(ops[n].Err)
		}
		ops = ops[n:]
		h.at += p.WriteHold()
	}
	var s protocol.Statistics
	var d Dropped
	if p.count(&s, &d); d != (Dropped{}) || !slices.EqualFunc(q.Out, frames, bytes.Equal) || len(p.refused.List()) != 0 {
		t.Errorf("%d of %d frames written in %d tries, %+v, because %q", len(q.Out), len(frames), tries, d, p.refused.List())
	}
	if tries < 100 {
		t.Errorf("%d tries", tries)
	}
}

// TestGroupRateUrgent has the latency channel, which carries ARP, send to groups when the other
// channels have exhausted the limit. Its frames must pass, up to its own limit.
func TestGroupRateUrgent(t *testing.T) {
	h := &hand{}
	p, q := newPoliced(hostWith("all"), groupLimited(policy.MinPPS, h))
	urgent := &policed{queue: q, rules: p.rules, taken: p.taken, refused: p.refused, urgent: true}
	written := func(p *policed) int {
		q.Out = nil
		for range 3 * BurstPackets {
			if err := p.WriteFrame(frame(Broadcast, own, 60)); err != nil {
				t.Fatal(err)
			}
		}
		return len(q.Out)
	}
	if n := written(p); n != BurstPackets {
		t.Errorf("%d frames passed", n)
	}
	if n := written(urgent); n != BurstPackets {
		t.Errorf("%d frames of the latency channel passed", n)
	}
	h.at += time.Second
	if n := written(p); n != 0 {
		t.Errorf("%d frames passed before those of the latency channel were paid for", n)
	}
}

// TestGroupAccount checks that the bucket of a session that has ended is kept until it is full
// again.
func TestGroupAccount(t *testing.T) {
	h := &hand{}
	b := newBucket(bounds{packets: 100}, h.now)
	b.save()
	var k Accounts
	if k.Put("one", Account{toGroups: b}); len(k.left) != 0 {
		t.Error("an account that owes nothing is kept")
	}
	for range BurstPackets / 2 {
		b.takeOne(cost{packets: 1}, false)
	}
	k.Put("one", Account{toGroups: b})
	h.at += 10 * time.Millisecond
	a := k.Take("one")
	if a.toGroups != b {
		t.Fatalf("%+v is taken", a)
	}
	if d := b.untilFull(); d < 629*time.Millisecond || d > 631*time.Millisecond {
		t.Errorf("what is missing is there again in %v", d)
	}
	k.Put("one", a)
	h.at += time.Second
	if k.Put("two", Account{}); len(k.left) != 0 {
		t.Errorf("an account that owes nothing any more is kept: %+v", k.left)
	}
}
