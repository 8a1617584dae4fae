package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// driver is a front end of the tests: it transmits numbered frames on one ring and expects them
// back on the other. Each ring has its own memory: a part with the ring, which the device always
// has, and two halves with buffers, of which the device may lack one.
type driver struct {
	t      *testing.T
	feats  features
	conn   *net.UnixConn
	rings  [2]*guest // by their numbers
	kicks  [2]int
	posted [2][]posted // chains that the device owns, in order
	turns  [2]int      // number of chains made available so far
	half   int         // the half with the buffers in use
	r      *rand.Rand
	late   time.Time
	// Frames have shortest to longest bytes after their headers. The device owns chains of at most
	// ahead successive turns. So no buffer is reused while the device still owns its chain, even if
	// the device returns chains out of order.
	shortest, longest, ahead int

	sent, got uint64
}

// posted is a chain that the device owns.
type posted struct {
	bufs  []buffer
	slots int
	half  int
	id    uint16
	turn  int // number among all chains of the ring
}

const halfSize = (guestSize - buffersAt) / 2

func newDriver(t *testing.T, feats features) *driver {
	d := &driver{t: t, feats: feats | featProtocol, r: rand.New(rand.NewPCG(1, 2)), late: time.Now().Add(3 * time.Minute),
		shortest: 60, longest: 3060, ahead: ringSize}
	for i := range d.rings {
		d.rings[i] = newMemoryOf(t, feats, i, guestBase+uint64(i)<<32)
	}
	d.use(0)
	return d
}

// use sets the half in which new buffers are allocated.
func (d *driver) use(half int) {
	d.half = half
	for _, g := range d.rings {
		g.from = buffersAt + half*halfSize
		g.until, g.free = g.from+halfSize, g.from
	}
}

// say sends a message with file descriptors, and returns the body of the answer.
func (d *driver) say(request request, flags uint32, body []byte, fds ...int) []byte {
	d.t.Helper()
	m := messageOf(request, flags, body)
	if _, _, err := d.conn.WriteMsgUnix(m, unix.UnixRights(fds...), nil); err != nil {
		d.t.Fatal(err)
	}
	if flags == 0 && request != getVringBase {
		return nil
	}
	answer := make([]byte, headerSize+8)
	if _, err := io.ReadFull(d.conn, answer); err != nil {
		d.t.Fatalf("message %d: %v", request, err)
	}
	return answer[headerSize:]
}

func messageOf(request request, flags uint32, body []byte) []byte {
	m := binary.LittleEndian.AppendUint32(nil, uint32(request))
	m = binary.LittleEndian.AppendUint32(m, flagVersion|flags)
	return append(binary.LittleEndian.AppendUint32(m, uint32(len(body))), body...)
}

// order sends a message and waits until the device has carried it out.
func (d *driver) order(request request, body []byte, fds ...int) {
	d.t.Helper()
	if got := binary.LittleEndian.Uint64(d.say(request, flagNeedReply, body, fds...)); got != 0 {
		d.t.Fatalf("message %d is answered by %d", request, got)
	}
}

// numbers returns a body of 64-bit numbers.
func numbers(ns ...uint64) (b []byte) {
	for _, n := range ns {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// ofRing returns the body of a message that sets a value of a ring.
func ofRing(ring int, value uint32) []byte { return numbers(uint64(ring) | uint64(value)<<32) }

// userOf returns the address in the front end's process of a guest address.
func userOf(guest uint64) uint64 { return guest + 1<<40 }

// memory sends request r, which adds or removes this part of the memory, for each ring.
func (d *driver) memory(r request, from, size int) {
	d.t.Helper()
	for _, g := range d.rings {
		at := g.base + uint64(from)
		var fds []int
		if r == addMemReg {
			fds = append(fds, g.fd)
		}
		d.order(r, numbers(0, at, uint64(size), userOf(at), uint64(from)), fds...)
	}
}

// plug sends request r, which adds or removes a half, for each ring.
func (d *driver) plug(r request, half int) {
	d.t.Helper()
	d.memory(r, buffersAt+half*halfSize, halfSize)
}

// start sends all messages with which a front end begins a connection.
func (d *driver) start(c *net.UnixConn) {
	d.t.Helper()
	if err := c.SetDeadline(d.late); err != nil {
		d.t.Fatal(err)
	}
	d.conn = c
	d.say(setFeatures, 0, numbers(uint64(d.feats)))
	d.say(setProtocolFeatures, 0, numbers(uint64(protoReplyAck|protoMemSlots|protoMQ)))
	d.memory(addMemReg, 0, buffersAt)
	d.plug(addMemReg, d.half)
	for i := range d.rings {
		d.startRing(i, 1<<15)
		d.order(setVringEnable, ofRing(i, 1))
	}
}

func (d *driver) startRing(i int, base uint32) {
	d.t.Helper()
	user := userOf(d.rings[i].base)
	d.order(setVringNum, ofRing(i, ringSize))
	d.order(setVringAddr, numbers(uint64(i), user, user+usedAt, user+availAt, 0))
	d.order(setVringBase, ofRing(i, base))
	for _, r := range []request{setVringCall, setVringKick} {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			d.t.Fatal(err)
		}
		d.order(r, numbers(uint64(i)), fd)
		if r == setVringKick {
			if d.kicks[i] > 0 {
				unix.Close(d.kicks[i])
			}
			d.kicks[i] = fd
		} else {
			unix.Close(fd) // the descriptor is not used
		}
	}
}

// restartRing stops a ring, as for a paused virtual machine, and starts it again.
func (d *driver) restartRing(i int) {
	d.t.Helper()
	answer := d.say(getVringBase, 0, ofRing(i, 0))
	d.startRing(i, binary.LittleEndian.Uint32(answer[4:]))
}

// numbered returns the frame with number seq, with the driver's virtio header.
func (d *driver) numbered(seq uint64) []byte {
	r := rand.New(rand.NewPCG(seq, 1))
	f := make([]byte, 12+d.shortest+r.IntN(d.longest-d.shortest))
	frametest.Fill(f[12:], seq)
	return f
}

// post makes a chain available, and kicks if the device asks for a kick.
func (d *driver) post(ring int, bufs []buffer) {
	g, old := d.rings[ring], d.rings[ring].avail
	indirect := d.r.IntN(3) == 0
	p := posted{bufs: bufs, slots: len(bufs), half: d.half, turn: d.turns[ring]}
	if indirect {
		p.slots = 1
	}
	d.turns[ring]++
	g.add(bufs, indirect)
	p.id = g.last
	d.posted[ring] = append(d.posted[ring], p)
	new(common).barrier()
	if g.wantsKick(old) {
		_, _ = unix.Write(d.kicks[ring], one)
	}
}

func (d *driver) slots(ring int) (n int) {
	for _, p := range d.posted[ring] {
		n += p.slots
	}
	return n
}

// take takes the next used chain from the ring, if there is one. n is the number of bytes that the
// device has written to it.
func (d *driver) take(ring int) (p posted, n int, ok bool) {
	if n, ok = d.rings[ring].used(); ok {
		back := d.rings[ring].back
		i := slices.IndexFunc(d.posted[ring], func(p posted) bool { return p.id == back })
		if i < 0 {
			d.t.Fatalf("ring %d: chain %d is given back, which is not the device's", ring, back)
		}
		p = d.posted[ring][i]
		d.posted[ring] = slices.Delete(d.posted[ring], i, i+1)
	}
	return p, n, ok
}

// step transmits frames while there is room, up to number last, and takes all used chains. It pauses
// if there is nothing to do: a driver that polls would take the processor from the device.
func (d *driver) step(last uint64) {
	const chain = 4
	sent, got := d.sent, d.got
	for d.sent < last && d.sent-d.got < ringSize && d.slots(1)+chain <= ringSize &&
		(len(d.posted[1]) == 0 || d.turns[1]-d.posted[1][0].turn < d.ahead) {
		f := d.numbered(d.sent)
		bufs := d.rings[1].pieces(d.r, len(f), 1+d.r.IntN(chain))
		for _, b := range bufs {
			f = f[copy(d.rings[1].at(b), f):]
		}
		d.post(1, bufs)
		d.sent++
	}
	for d.slots(0)+2 <= ringSize {
		d.post(0, d.rings[0].pieces(d.r, 500+d.r.IntN(2000), 2))
	}
	taken := false
	for ok := true; ok; taken = taken || ok {
		_, _, ok = d.take(1)
	}
	for d.receive() {
	}
	if d.sent == sent && d.got == got && !taken {
		time.Sleep(50 * time.Microsecond)
	}
	if time.Now().After(d.late) {
		d.t.Fatalf("%d frames were transmitted and %d received; chains that are the device's: %d, %d",
			d.sent, d.got, len(d.posted[1]), len(d.posted[0]))
	}
}

// receive takes one frame, if there is one, and checks that it is the next one.
func (d *driver) receive() bool {
	p, n, ok := d.take(0)
	if !ok {
		return false
	}
	var f []byte
	gather := func() {
		for _, b := range p.bufs {
			k := min(n, int(b.len))
			f = append(f, d.rings[0].at(b)[:k]...)
			n -= k
		}
	}
	gather()
	for range binary.LittleEndian.Uint16(f[10:]) - 1 {
		if p, n, ok = d.take(0); !ok {
			d.t.Fatal("a frame has fewer buffers than its header says")
		}
		gather()
	}
	f[10], f[11] = 0, 0
	if want := d.numbered(d.got); !slices.Equal(f, want) {
		d.t.Fatalf("frame %d of %d bytes comes back as %d:\n%x\n%x", d.got, len(want), len(f), want[:60], f[:60])
	}
	d.got++
	return true
}

// exchange transmits and receives frames until last frames have been received.
func (d *driver) exchange(last uint64) {
	for d.got < last {
		d.step(last)
	}
}

// swap adds the other half, uses its buffers, and removes the old half as soon as the device owns
// no buffer of the old half.
func (d *driver) swap() {
	d.t.Helper()
	old := d.half
	d.plug(addMemReg, 1-old)
	d.use(1 - old)
	in := func(p posted) bool { return p.half == old }
	for slices.ContainsFunc(d.posted[0], in) || slices.ContainsFunc(d.posted[1], in) {
		d.step(d.sent + 1)
	}
	d.plug(remMemReg, old)
}

// echo writes the frames that it reads from a queue back to the queue, until stop is called. It
// writes a frame again if the frame was lost because there was no front end. Frames that one run
// has not written are written by the next run.
type echo struct {
	t       *testing.T
	running sync.WaitGroup
	stopped atomic.Bool
	drops   atomic.Bool // frames of a disabled ring are dropped
	event   int
	left    [][]byte
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &echo{t: t, event: fd}
}

func (e *echo) start(q *Queue) {
	e.stopped.Store(false)
	_, _ = unix.Read(e.event, make([]byte, 8))
	e.running.Go(func() {
		if err := e.run(q); err != nil {
			e.t.Error(err)
		}
	})
}

func (e *echo) stop() {
	e.stopped.Store(true)
	_, _ = unix.Write(e.event, one)
	e.running.Wait()
}

func (e *echo) run(q *Queue) error {
	ops := readOps(8)
	for !e.stopped.Load() {
		if len(e.left) == 0 {
			n := q.ReadFrames(ops)
			for _, op := range ops[:n] {
				switch {
				case op.Err == nil:
					e.left = append(e.left, slices.Clone(op.Frame))
				case errors.Is(op.Err, errAgain):
					e.sleep(q.FD())
				case errors.Is(op.Err, vnet.ErrFiltered) && e.drops.Load():
				default:
					return fmt.Errorf("reading: %w", op.Err)
				}
			}
			continue
		}
		writes := make([]vnet.WriteOp, len(e.left))
		for i, f := range e.left {
			writes[i].Head = f
		}
		q.WriteFrames(writes)
		n := slices.IndexFunc(writes, func(op vnet.WriteOp) bool { return op.Err != nil })
		if n < 0 {
			e.left = nil
			continue
		}
		e.left = e.left[n:]
		if err := writes[n].Err; !errors.Is(err, errAgain) && !errors.Is(err, errDown) {
			return fmt.Errorf("writing: %w", err)
		}
		e.sleep(q.WriteFD())
	}
	return nil
}

// sleep waits until a descriptor is readable, or until stop is called.
func (e *echo) sleep(fd int) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(e.event), Events: unix.POLLIN}}, -1)
	runtime.Gosched()
}
