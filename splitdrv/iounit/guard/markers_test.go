package guard

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

func markerFrame(number int) []byte {
	m := protocol.Marker{Queues: 1}
	binary.BigEndian.PutUint64(m.Nonce[:], uint64(number))
	return protocol.AppendMarker(nil, own, other, &m)
}

// newQueues returns the ports and queues of a host's interface with n queues. woken counts how often
// their readers are woken.
func newQueues(n int, direct bool) (ports []*policed, queues []*queue, woken *int) {
	woken = new(int)
	m := newMarkers(n, func() bool { return direct }, func() { *woken++ })
	for i := range n {
		p, q := newPoliced(hostWith("all"))
		p.number, p.markers = i, m
		ports, queues = append(ports, p), append(queues, q)
	}
	return ports, queues, woken
}

// readAll reads until the queue is empty, up to most frames in one call. It returns the lengths of
// the frames, and -1 for a marker.
func readAll(t *testing.T, p *policed, most int) (lengths []int) {
	t.Helper()
	ops := make([]vnet.ReadOp, most)
	for i := range ops {
		ops[i].Slot = make([]byte, 256)
	}
	for range 1 << 17 {
		n := p.ReadFrames(ops)
		for i := range ops[:n] {
			switch {
			case ops[i].Err != nil:
				if i != n-1 {
					t.Fatalf("%v before the end", ops[i].Err)
				}
				return lengths
			case protocol.IsMarker(ops[i].Frame):
				lengths = append(lengths, -1)
			default:
				lengths = append(lengths, len(ops[i].Frame)-vnet.HdrLen)
			}
		}
	}
	t.Fatal("there is always more")
	return nil
}

// TestMarkerToAllQueues has the LAN put a marker into one queue. It must be read from all queues,
// behind the frames that are in them.
func TestMarkerToAllQueues(t *testing.T) {
	for most := 1; most < 6; most++ {
		ports, queues, woken := newQueues(3, true)
		queues[0].In = [][]byte{frame(own, other, 60), markerFrame(1), frame(own, other, 61)}
		queues[1].In = [][]byte{frame(own, other, 62), frame(own, other, 63), frame(own, other, 64)}
		for i, want := range [][]int{{60, -1, 61}, {62, 63, 64, -1}, {-1}} {
			if got := readAll(t, ports[i], most); !equal(got, want) {
				t.Errorf("%d at once: queue %d has %d, want %d", most, i, got, want)
			}
		}
		if *woken != 1 {
			t.Errorf("the readers are woken %d times", *woken)
		}
		queues[1].In = [][]byte{frame(own, other, 65)}
		for i, want := range [][]int{nil, {65}, nil} {
			if got := readAll(t, ports[i], most); !equal(got, want) {
				t.Errorf("%d at once: queue %d has %d then, want %d", most, i, got, want)
			}
		}
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestMarkerThroughBusyQueue has a queue that is never read until it is empty. The marker must be
// read after as many frames as a queue can hold.
func TestMarkerThroughBusyQueue(t *testing.T) {
	ports, queues, _ := newQueues(2, true)
	queues[0].In = [][]byte{markerFrame(1)}
	readAll(t, ports[0], 1)
	ops := []vnet.ReadOp{{Slot: make([]byte, 256)}, {Slot: make([]byte, 256)}}
	for n := 0; ; {
		queues[1].In = [][]byte{frame(own, other, 60), frame(own, other, 60)}
		got := ports[1].ReadFrames(ops)
		if protocol.IsMarker(ops[0].Frame) {
			if n != queueHolds || got != 1 {
				t.Errorf("the marker has come behind %d frames", n)
			}
			return
		}
		if n += got; n > queueHolds {
			t.Fatal("the marker does not come")
		}
	}
}

// TestMarkersThatAreNotCopied tests frames that must stay in their own queue.
func TestMarkersThatAreNotCopied(t *testing.T) {
	for name, tc := range map[string]struct {
		direct bool
		frame  []byte
	}{
		"a host without direct connections": {false, markerFrame(1)},
		"a long one":                        {true, append(markerFrame(1), 0)},
		"a frame":                           {true, frame(own, other, 60)},
	} {
		ports, queues, woken := newQueues(2, tc.direct)
		queues[0].In = [][]byte{tc.frame}
		if got := readAll(t, ports[0], 4); len(got) != 1 {
			t.Errorf("%s: %d frames", name, got)
		}
		if got := readAll(t, ports[1], 4); len(got) != 0 || *woken != 0 {
			t.Errorf("%s is copied: %d, woken %d times", name, got, *woken)
		}
	}
	if newMarkers(1, nil, nil) != nil {
		t.Error("markers wait for the queue that they came through")
	}
}

// TestMarkerFlood sends markers to a host as fast as possible. The number of copies must be limited.
func TestMarkerFlood(t *testing.T) {
	const flood = 10000
	ports, queues, _ := newQueues(3, true)
	m := ports[0].markers
	m.rate = rate.NewLimiter(0, markerBurst) // no time passes
	for i := range flood {
		queues[0].In = append(queues[0].In, markerFrame(i))
	}
	readAll(t, ports[0], 8)
	if got := readAll(t, ports[1], 8); len(got) != markersWaiting {
		t.Errorf("%d markers waited", len(got))
	}
	copies := markersWaiting
	for i := range flood {
		queues[0].In = append(queues[0].In, markerFrame(i))
		readAll(t, ports[0], 8)
		copies += len(readAll(t, ports[1], 8))
	}
	if copies > markerBurst {
		t.Errorf("%d markers were copied", copies)
	}
	if got := len(m.queues[2].waiting); got != markersWaiting {
		t.Errorf("%d markers wait for a queue that nobody reads", got)
	}
}

// TestMarkersStayBehind has markers and frames arrive in any order, and queues be read in any order.
// No marker may be read from a queue before the frames that were in the queue when it arrived.
func TestMarkersStayBehind(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		ports, queues, _ := newQueues(3, true)
		ports[0].markers.rate = rate.NewLimiter(rate.Inf, 0)
		put, read := make([]int, 3), make([]int, 3) // number of frames, by queue
		before, through := [][]int{}, [][]int{{}, {}, {}}
		ops := make([]vnet.ReadOp, 4)
		for i := range ops {
			ops[i].Slot = make([]byte, 256)
		}
		look := func(i, most int) (more bool) {
			n := ports[i].ReadFrames(ops[:most])
			for _, op := range ops[:n] {
				if op.Err != nil {
					return false
				}
				if !protocol.IsMarker(op.Frame) {
					read[i]++
					continue
				}
				number := int(binary.BigEndian.Uint64(op.Frame[protocol.MarkerLen-36:]))
				through[i] = append(through[i], number)
				if read[i] < before[number][i] {
					t.Fatalf("seed %d: marker %d has come through queue %d behind %d frames of %d", seed, number, i,
						read[i], before[number][i])
				}
			}
			return true
		}
		for range 500 {
			i := rnd.IntN(3)
			switch rnd.IntN(6) {
			case 0:
				queues[i].In = append(queues[i].In, markerFrame(len(before)))
				before = append(before, []int{put[0], put[1], put[2]})
			case 1, 2, 3:
				queues[i].In = append(queues[i].In, frame(own, other, 60))
				put[i]++
			default:
				look(i, 1+rnd.IntN(4))
			}
		}
		for range 3 {
			for i := range ports {
				for look(i, 4) {
				}
			}
		}
		for i := range ports {
			if len(through[i]) != len(before) || read[i] != put[i] {
				t.Fatalf("seed %d: %d markers of %d, %d frames of %d have come through queue %d", seed, len(through[i]),
					len(before), read[i], put[i], i)
			}
		}
	}
}

// lateQueue is a queue that calls after before a read returns.
type lateQueue struct {
	*queue
	after func()
}

func (q *lateQueue) ReadFrames(ops []vnet.ReadOp) int {
	n := q.queue.ReadFrames(ops)
	q.after()
	return n
}

// TestMarkerComesDuringRead has a frame arrive in a queue that has just been found empty, and a
// marker after it in another queue. The marker must not be read before the frame.
func TestMarkerComesDuringRead(t *testing.T) {
	ports, queues, _ := newQueues(2, true)
	ports[1].queue = &lateQueue{queues[1], func() {
		if queues[0].In == nil {
			queues[1].In = [][]byte{frame(own, other, 60)}
			queues[0].In = [][]byte{markerFrame(1)}
			readAll(t, ports[0], 4)
		}
	}}
	if got := readAll(t, ports[1], 4); len(got) != 0 {
		t.Errorf("the marker has come before the frame: %d", got)
	}
	if got := readAll(t, ports[1], 4); !equal(got, []int{60, -1}) {
		t.Errorf("the queue has %d", got)
	}
}
