package messaging_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// hooked is a device that calls hooks of the test before operations, on the goroutine of the
// operation. If it is the Config.Device of an endpoint, the endpoint uses its own device
// through it.
type hooked struct {
	fabric.Device
	control atomic.Uint32 // number of the control channel's queue pair; 0 before it is created

	mu    sync.Mutex // guards the fields below
	mem   [][]byte   // registered memory
	calls hooks
}

// hooks are functions called before an operation, unless they are nil.
type hooks struct {
	post       func(control bool)            // receives are posted, on the control channel or another one
	send       func(protocol.Function)       // a control message is sent
	refuse     func(protocol.Function) error // the same; an error makes the operation fail
	data       func()                        // a batch is posted on a data channel
	deregister func(rkey uint32)             // a region is deregistered
}

// on makes h a device through which dev is used.
func (h *hooked) on(dev fabric.Device) { h.Device = dev }

// set replaces the hooks.
func (h *hooked) set(calls hooks) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = calls
}

func (h *hooked) get() hooks {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

type hookedDomain struct {
	fabric.Domain
	h *hooked
}

type hookedRegion struct {
	fabric.Region
	h *hooked
}

type hookedQP struct {
	fabric.QP
	h *hooked
}

func (h *hooked) NewDomain() (fabric.Domain, error) {
	d, err := h.Device.NewDomain()
	return hookedDomain{d, h}, err
}

func (d hookedDomain) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	d.h.mu.Lock()
	d.h.mem = append(d.h.mem, mem)
	d.h.mu.Unlock()
	r, err := d.Domain.Register(mem, access)
	return hookedRegion{r, d.h}, err
}

func (d hookedDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	q, err := d.Domain.NewQP(cfg)
	if err != nil {
		return nil, err
	}
	d.h.control.CompareAndSwap(0, q.Num()) // the first queue pair is that of the control channel
	return hookedQP{q, d.h}, nil
}

// at returns the data of a work request.
func (h *hooked) at(wr *fabric.SendWR) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, mem := range h.mem {
		off := wr.Addr - uint64(uintptr(unsafe.Pointer(&mem[0])))
		if off < uint64(len(mem)) {
			return mem[off:][:wr.Len]
		}
	}
	return nil
}

func (r hookedRegion) Close() error {
	if do := r.h.get().deregister; do != nil {
		do(r.RKey())
	}
	return r.Region.Close()
}

func (q hookedQP) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if do := q.h.get().post; do != nil {
		do(q.Num() == q.h.control.Load())
	}
	return q.QP.PostRecv(wrs)
}

func (q hookedQP) PostSend(wrs []fabric.SendWR) (int, error) {
	if do := q.h.get().data; do != nil && q.Num() != q.h.control.Load() {
		do()
	}
	if do := q.h.get(); (do.send != nil || do.refuse != nil) && q.Num() == q.h.control.Load() {
		for i := range wrs {
			d, err := protocol.DecodeHeader(q.h.at(&wrs[i]))
			if err != nil {
				continue
			}
			if do.send != nil {
				do.send(d.Function)
			}
			if do.refuse != nil {
				if err := do.refuse(d.Function); err != nil {
					return i, err
				}
			}
		}
	}
	return q.QP.PostSend(wrs)
}

// TestCountedBeforePosted reads the counters when a batch is posted. The batch must be counted
// already, because the peer may answer its frames before this side's sender goes on.
func TestCountedBeforePosted(t *testing.T) {
	const frames = 100
	dev := &hooked{}
	cfg := patient(messaging.Config{Protection: messaging.ProtectRegion})
	cfgA := cfg
	cfgA.Device = dev
	_, a, b := newPair(t, cfgA, cfg)
	var posts, counted, in atomic.Uint64
	dev.set(hooks{data: func() {
		s := a.conn.Stats().Channels[0]
		posts.Add(1)
		counted.Store(s.TxPosts)
		in.Store(s.TxFrames)
	}})
	ctx := deadline(t)
	buf := make([]byte, vnet.MaxFrame+1)
	for i := range frames {
		if err := a.wires[0].Send(ctx, frame(uint64(i), 100, 1500)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.wires[0].Receive(ctx, buf); err != nil {
			t.Fatal(err)
		}
		if p, c, f := posts.Load(), counted.Load(), in.Load(); p != uint64(i+1) || c != p || f != p {
			t.Fatalf("batch %d of one frame is posted, and %d batches of %d frames are counted", p, c, f)
		}
	}
}

// toldPort is a port that tells the test how many frames it is about to write.
type toldPort struct {
	porttest.Batched
	told func(frames int)
}

func (p toldPort) WriteFrames(ops []vnet.WriteOp) int {
	p.told(len(ops))
	return p.Batched.WriteFrames(ops)
}

// TestCountedBeforeWritten reads the counters when frames are written to the port. The frames
// must be counted already, because they may be answered before this side's receiver goes on.
func TestCountedBeforeWritten(t *testing.T) {
	inEachGuard(t, func(t *testing.T, cfg messaging.Config) {
		cfg = patient(cfg)
		_, a, b := newStopped(t, cfg, cfg)
		var written, counted, bytes atomic.Uint64
		b.ports = []messaging.Port{toldPort{b.ports[0].(porttest.Batched), func(frames int) {
			s := b.conn.Stats().Channels[0]
			written.Add(uint64(frames))
			counted.Store(s.RxFrames)
			bytes.Store(s.RxBytes)
		}}}
		for _, h := range []*endpoint{a, b} {
			if err := h.conn.Start(h.ports); err != nil {
				t.Fatal(err)
			}
		}
		ctx := deadline(t)
		buf := make([]byte, vnet.MaxFrame+1)
		const size = 100
		for i := range uint64(20) {
			if err := a.wires[0].Send(ctx, frame(i, size, 1500)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.wires[0].Receive(ctx, buf); err != nil {
				t.Fatal(err)
			}
			if w, c, n := written.Load(), counted.Load(), bytes.Load(); w != i+1 || c != w || n != w*size {
				t.Fatalf("%d frames of %d bytes are written, and %d of %d bytes in all are counted", w, size, c, n)
			}
		}
	})
}

// TestFlushReplyComesLast has a peer give pools back. When the reply is sent, the memory of
// the pools must be deregistered already, so that the peer can no longer write there.
func TestFlushReplyComesLast(t *testing.T) {
	var deregistered, before, replies atomic.Int32
	keys := make(map[uint32]bool)
	dev := &hooked{}
	_, p := newRawPeer(t, messaging.Config{Device: dev, Protection: messaging.ProtectRegion})
	var request []uint32
	for _, l := range p.pools {
		keys[l.RKey] = true
		request = append(request, l.Ref|protocol.FlushGiveBack)
	}
	// Nothing is deregistered, and no reply is sent, before the peer asks for it.
	dev.set(hooks{
		deregister: func(rkey uint32) {
			if keys[rkey] {
				deregistered.Add(1)
			}
		},
		send: func(f protocol.Function) {
			if f == protocol.FuncBufferPoolFlushReply {
				before.Store(deregistered.Load())
				replies.Add(1)
			}
		},
	})
	p.send(protocol.AppendBufferPoolFlushRequest(nil, 1, request...))
	p.recycle(p.function(protocol.FuncBufferPoolFlushReply))
	if n := before.Load(); int(n) != len(p.pools) || replies.Load() != 1 {
		t.Errorf("%d of %d pools were deregistered when the reply was sent", n, len(p.pools))
	}
}

// TestReceiveIsPostedFirst has a peer return an element. The receive used by its message must
// be posted again before the element may be written again, because the peer's next message,
// after such a write, relies on this receive.
func TestReceiveIsPostedFirst(t *testing.T) {
	dev := &hooked{}
	h, p := newRawPeer(t, messaging.Config{Device: dev, Protection: messaging.ProtectRegion})
	_, err := p.data.PostRecv([]fabric.RecvWR{{ID: rawReceives}})
	p.ok(err)
	lent := p.ownPool(0)
	p.send(protocol.AppendBufferRecvPool(nil, 0, lent))
	if err := h.wires[0].Send(deadline(t), frame(1, 100, 1500)); err != nil {
		t.Fatal(err)
	}
	out := func() int { return h.conn.Stats().Channels[0].Remote.Out }
	until(t, func() error {
		if n := out(); n != 1 {
			return fmt.Errorf("%d elements are out", n)
		}
		return nil
	})
	var posted, early atomic.Int32
	dev.set(hooks{post: func(control bool) {
		if control && posted.Add(1) == 1 {
			early.Store(int32(out()))
		}
	}})
	p.send(protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 0, Elements: []uint16{0}}))
	until(t, func() error {
		if out() != 0 || posted.Load() == 0 {
			return errors.New("the element is not returned")
		}
		return nil
	})
	if n := early.Load(); n != 1 {
		t.Errorf("%d elements were out when the receive was posted again, want 1: it has to come first", n)
	}
}

// TestPoolsOnRequestHaveAPace asks for pools and gives them back, with its own clock. The
// endpoint must lend up to its maximum at once, and then as many as its rate limit allows.
func TestPoolsOnRequestHaveAPace(t *testing.T) {
	const most, interval = 2, 50 * time.Millisecond
	var clock atomic.Int64
	clock.Store(int64(time.Hour))
	cfg := messaging.Config{
		Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 4}}, MaxPools: most, Protection: messaging.ProtectRegion,
	}
	cfg.Now = func() time.Time { return time.Unix(0, clock.Load()) }
	h, p := newRawPeer(t, cfg)
	asked := uint64(0)
	ask := func() bool {
		t.Helper()
		before := h.conn.Stats().PoolsGranted
		p.send(protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 2048, Elements: 4, Channel: 1}))
		asked++
		until(t, func() error {
			if s := h.conn.Stats(); s.PoolsGranted+s.PoolsRefused != asked {
				return fmt.Errorf("%d granted and %d refused of %d", s.PoolsGranted, s.PoolsRefused, asked)
			}
			return nil
		})
		if h.conn.Stats().PoolsGranted == before {
			return false
		}
		lent := p.function(protocol.FuncBufferRecvPool)
		m, err := protocol.DecodeBufferRecvPool(lent)
		p.ok(err)
		ref := m.At(0).Ref
		p.recycle(lent)
		p.send(protocol.AppendBufferPoolFlushRequest(nil, asked, ref|protocol.FlushGiveBack))
		p.recycle(p.function(protocol.FuncBufferPoolFlushReply))
		return true
	}
	for _, tt := range []struct {
		passes time.Duration
		want   int
	}{{0, most}, {interval, 1}, {interval - time.Millisecond, 0}, {2 * time.Millisecond, 1}, {time.Hour, most},
		{3 * interval, most}} {
		clock.Add(int64(tt.passes))
		got := 0
		for range most + 2 {
			if ask() {
				got++
			}
		}
		if got != tt.want {
			t.Errorf("after %v %d pools were lent, want %d", tt.passes, got, tt.want)
		}
	}
}
