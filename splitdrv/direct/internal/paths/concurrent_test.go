package paths

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// liveHost is a host whose applications, senders and receivers are goroutines.
type liveHost struct {
	t       *testing.T
	split   *Split
	devices []*device

	mu    sync.Mutex
	more  sync.Cond // uses mu
	got   []uint32  // by flow: number of the next frame expected from the other host
	wrong int       // number of frames out of order
}

func newLiveHost(t *testing.T, queues int) *liveHost {
	h := &liveHost{t: t, got: make([]uint32, flows)}
	h.more.L = &h.mu
	h.split, h.devices = newSplit(t, queues, Config{})
	h.split.grace = grace
	for _, d := range h.devices {
		d.sink = h.receive
	}
	return h
}

// receive counts a frame that is written to the netdevice.
func (h *liveHost) receive(f []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	flow, number := f[vnet.MinFrame], binary.BigEndian.Uint32(f[vnet.MinFrame+1:])
	if number != h.got[flow] {
		h.wrong++
	}
	h.got[flow] = number + 1
	h.more.Broadcast()
}

// application sends frames of a flow to a host, with few frames in flight at a time, and waits
// until all have arrived.
func application(from, to *liveHost, src, dst protocol.MAC, flow, frames int) {
	for i := range uint32(frames) {
		to.mu.Lock()
		for i-to.got[flow] > 100 {
			to.more.Wait()
		}
		to.mu.Unlock()
		f := frame(dst, src, 60+int(i%100))
		f[vnet.MinFrame] = byte(flow)
		binary.BigEndian.PutUint32(f[vnet.MinFrame+1:], i)
		from.devices[flow%len(from.devices)].send(f)
	}
	to.mu.Lock()
	for to.got[flow] < uint32(frames) {
		to.more.Wait()
	}
	to.mu.Unlock()
}

// carry reads frames from a port until stop is set, and then the remaining frames. It passes them
// to out.
func carry(t *testing.T, port messaging.Port, stop *epoll.Event, out func(frames [][]byte)) {
	set, err := epoll.NewSet(epoll.Readable(port.FD()), epoll.Readable(stop.FD()))
	if err != nil {
		t.Error(err)
		return
	}
	defer set.Close()
	defer port.(messaging.SharedPort).Release()
	s := newSender(port, 8)
	ended := false
	if err := set.Run(func() (bool, error) {
		for {
			ended = readable(t, stop.FD())
			frames := s.drain(t)
			if len(frames) > 0 {
				out(frames)
			} else {
				return ended, nil
			}
			runtime.Gosched()
		}
	}); err != nil {
		t.Error(err)
	}
}

// TestOrderLive does what TestOrder does, with concurrent goroutines.
func TestOrderLive(t *testing.T) {
	const frames, changes = 500, 20
	macs := [2]protocol.MAC{own, peer}
	hosts := [2]*liveHost{newLiveHost(t, 2), newLiveHost(t, 3)}
	var unit sync.WaitGroup
	over, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { over.Close() })
	for i, h := range hosts {
		ports := hosts[1-i].split.Uplink()
		for _, from := range h.split.Uplink() {
			unit.Go(func() {
				carry(t, from, over, func(frames [][]byte) {
					for range 20 {
						runtime.Gosched() // the path through the I/O unit is slower
					}
					for _, f := range frames {
						to := ports
						if !protocol.IsMarker(f) {
							to = ports[int(f[vnet.MinFrame])%len(ports):][:1]
						}
						for _, p := range to {
							p.WriteFrames([]vnet.WriteOp{{Head: f}})
						}
					}
				})
			})
		}
	}
	var applications sync.WaitGroup
	var busy atomic.Bool
	busy.Store(true)
	for i, h := range hosts {
		for flow := range flows {
			applications.Go(func() { application(h, hosts[1-i], macs[i], macs[1-i], flow, frames) })
		}
	}
	go func() {
		applications.Wait()
		busy.Store(false)
	}()
	direct, n := uint64(0), 0
	for ; busy.Load() || n < changes; n++ {
		direct += directly(t, hosts, macs, byte(n))
	}
	applications.Wait()
	over.Set()
	unit.Wait()
	t.Logf("%d paths; %d frames went directly", n, direct)
	for i, h := range hosts {
		if h.wrong > 0 || h.split.Counts().UplinkFull > 0 {
			t.Errorf("host %d: %d frames out of order; %+v", i, h.wrong, h.split.Counts())
		}
		if h.split.table.Load() != nil {
			t.Errorf("host %d has a path", i)
		}
	}
}

// directly opens a direct path and closes it again. It returns the number of frames on the path.
func directly(t *testing.T, hosts [2]*liveHost, macs [2]protocol.MAC, number byte) (sent uint64) {
	stop, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer stop.Close()
	var paths [2]*Path
	arrived := [2]chan bool{make(chan bool), make(chan bool)}
	for i, h := range hosts {
		p, err := h.split.Open(Peer{MACs: []protocol.MAC{macs[1-i]}, Own: []protocol.MAC{macs[i]},
			Out: pathNonces(number, i), In: pathNonces(number, 1-i), MTU: 1500,
			Arrived: func() { close(arrived[i]) }})
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = p
	}
	var carriers sync.WaitGroup
	for i, p := range paths {
		carriers.Go(func() {
			carry(t, p.Port(), stop, func(frames [][]byte) {
				for _, f := range frames {
					paths[1-i].Port().WriteFrames([]vnet.WriteOp{{Head: f}})
				}
			})
		})
	}
	for _, p := range paths {
		p.Enter()
	}
	deadline := time.Now().Add(time.Minute)
	for i, p := range paths {
		for waiting := true; waiting; {
			if t.Failed() || time.Now().After(deadline) {
				t.Fatalf("the markers of host %d have not come", i)
			}
			select {
			case <-arrived[1-i]:
				waiting = false
			case <-time.After(10 * time.Millisecond):
				p.Mark()
			}
		}
		p.Confirm()
	}
	for range 200 {
		runtime.Gosched()
	}
	for _, p := range paths {
		p.Leave()
	}
	stop.Set()
	carriers.Wait()
	for _, p := range paths {
		c := p.Counts()
		sent += c.OutFrames
		if c.Full+c.Source+c.Destination+c.VLAN+c.Malformed > 0 {
			t.Errorf("%+v", c)
		}
		p.Close(nil)
	}
	return sent
}
