package native

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// datagrams is the kind of datagrams of an overload.
type datagrams struct {
	name    string
	size    int // bytes handed to the kernel in one call
	segment int // bytes of each datagram, if the kernel is to cut the data of a call (UDP_SEGMENT)
}

// frameData is the UDP payload of a frame with an MTU of 1500.
const frameData = 1472

var overloads = []datagrams{
	{name: "full", size: frameData},                              // one frame each
	{name: "segments", size: 44 * frameData, segment: frameData}, // super-frames
	{name: "fragments", size: 65000},                             // 45 frames each, of which none may be lost
}

// factors has the loads that are offered to a subject, as multiples of what it can carry.
var factors = []float64{2, 5, 10}

const (
	window       = 300 << 10 // bytes in flight if none may be lost: less than any queue has room for
	overloadTime = 400 * time.Millisecond
	// burstTime limits the backlog of a paced sender that had no processor for a time: it sends
	// at once what was due in burstTime at most.
	burstTime = 5 * time.Millisecond
	// The search for what can be carried multiplies the rate by raise, at most raises times.
	raise, raises = 1.5, 8
)

// torrent sends datagrams at a given rate, whether they arrive or not, or as fast as they
// arrive.
type torrent struct {
	datagrams
	ends
	rate           float64       // bytes per second; 0: as fast as they arrive
	sent, received atomic.Uint64 // bytes
}

func newTorrent(from, to, addr string, d datagrams, rate float64) (*torrent, error) {
	t := &torrent{datagrams: d, rate: rate}
	err := t.open(from, to, addr)
	if err == nil {
		err = t.aim(addr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s to %s: %w", d.name, addr, err), t.stop())
	}
	t.run(t.receive, t.send)
	return t, nil
}

// aim sets the destination of the datagrams, and their segmentation.
func (t *torrent) aim(addr string) error {
	if t.segment > 0 {
		if err := unix.SetsockoptInt(t.out, unix.SOL_UDP, unix.UDP_SEGMENT, t.segment); err != nil {
			return os.NewSyscallError("setsockopt UDP_SEGMENT", err)
		}
	}
	return os.NewSyscallError("connect", unix.Connect(t.out, sockaddr(addr, udpPort)))
}

func (t *torrent) send() error {
	buf := make([]byte, t.size)
	begin := time.Now()
	var due float64 // position in the schedule, in bytes
	for !t.stopping.Load() {
		if t.rate > 0 {
			now := time.Since(begin).Seconds() * t.rate
			if due > now {
				time.Sleep(min(time.Duration((due-now)/t.rate*1e9), burstTime/5))
				continue
			}
			due = max(due, now-burstTime.Seconds()*t.rate) + float64(t.size)
		} else if !t.room() {
			continue
		}
		_, err := unix.Write(t.out, buf)
		switch {
		case err == nil:
			t.sent.Add(uint64(t.size))
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN):
			return os.NewSyscallError("write", err)
		}
	}
	return nil
}

// room waits until the window has room for one more call. If nothing arrives for a while, the
// bytes in flight are counted as lost. room returns false if t is stopping.
func (t *torrent) room() bool {
	for last, since := t.received.Load(), time.Now(); int64(t.sent.Load()-t.received.Load()) > window-int64(t.size); {
		if t.stopping.Load() {
			return false
		}
		if r := t.received.Load(); r != last {
			last, since = r, time.Now()
		} else if time.Since(since) > overdue {
			t.sent.Store(r) // the rest is lost
		}
		time.Sleep(20 * time.Microsecond)
	}
	return true
}

func (t *torrent) receive() error {
	want := cmp.Or(t.segment, t.size)
	v := newVector(want + 1)
	for !t.stopping.Load() {
		n, err := v.call(unix.SYS_RECVMMSG, t.in, unix.MSG_WAITFORONE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvmmsg", err)
		}
		for i := range n {
			if got := int(v.msgs[i].n); got != want {
				return fmt.Errorf("received %d bytes instead of %d", got, want)
			}
		}
		t.received.Add(uint64(n * want))
	}
	return nil
}

func (t *torrent) count() uint64 { return t.received.Load() }

// goodput sends for a while, and returns what was sent and what arrived, in bytes per second.
// It measures for dur.
func (d datagrams) goodput(
	ctx context.Context, from, to, addr string, rate float64, dur time.Duration,
) (sent, received float64, err error) {
	t, err := newTorrent(from, to, addr, d, rate)
	if err != nil {
		return 0, 0, err
	}
	err = results.Pause(ctx, dur/4)
	begin, s, r := time.Now(), t.sent.Load(), t.received.Load()
	err = errors.Join(err, results.Pause(ctx, dur))
	seconds := time.Since(begin).Seconds()
	sent, received = float64(t.sent.Load()-s)/seconds, float64(t.received.Load()-r)/seconds
	return sent, received, errors.Join(err, t.stop())
}

// Datagrams to an address of this network leave through a bridge without ports, which drops
// them.
const (
	sinkDev  = "sink0"
	sinkNet  = "203.0.113.1/24"
	sinkAddr = "203.0.113.2"
)

// newWaste starts to send datagrams at the given rate. The sender's kernel drops them.
func newWaste(from string, d datagrams, rate float64) (*torrent, error) {
	t := &torrent{datagrams: d, rate: rate, ends: ends{in: -1, out: -1}}
	err := makeSink(from)
	if err == nil {
		t.out, err = socket(from, unix.SOCK_DGRAM)
	}
	if err == nil {
		err = t.aim(sinkAddr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s to a bridge that drops them: %w", d.name, err), t.stop())
	}
	t.run(func() error { return nil }, t.send)
	return t, nil
}

// makeSink makes the bridge that drops datagrams, unless the bridge exists.
func makeSink(ns string) error {
	return testbed.In(ns, func(h *netlink.Handle) error {
		l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: sinkDev}}
		switch err := h.LinkAdd(l); {
		case errors.Is(err, unix.EEXIST):
			return nil
		case err != nil:
			return fmt.Errorf("making %s: %w", sinkDev, err)
		}
		return errors.Join(h.LinkSetARPOff(l), testbed.Up(ns, sinkDev), testbed.Address(ns, sinkDev, sinkNet))
	})
}

// load has what was offered, and what arrived.
type load struct{ offered, arrived float64 }

// capacity returns how many bytes per second can be carried. It first measures without losses,
// and then raises the rate until that does not help. The first result alone is too low if the
// window limits it, and not the subject.
func (d datagrams) capacity(ctx context.Context, from, to, addr string, dur time.Duration) (float64, error) {
	_, can, err := d.goodput(ctx, from, to, addr, 0, dur)
	if err == nil && can == 0 {
		err = errors.New("nothing arrived")
	}
	for range raises {
		if err != nil {
			break
		}
		var more float64
		if _, more, err = d.goodput(ctx, from, to, addr, raise*can, dur); more < 1.1*can {
			break
		}
		can = more
	}
	return can, err
}

// overload measures what can be carried between two network namespaces, and then offers
// multiples of that. best is the most that arrived in any of these measurements, in bytes per
// second. loads are in relation to best.
func (d datagrams) overload(
	ctx context.Context, from, to, addr string, dur time.Duration,
) (best float64, loads []load, err error) {
	// After this time, fragments of earlier measurements do not use memory any more
	// (ipfrag_time in newTopology).
	if err := results.Pause(ctx, 1100*time.Millisecond); err != nil {
		return 0, nil, err
	}
	can, err := d.capacity(ctx, from, to, addr, dur)
	best = can
	for _, f := range factors {
		if err != nil {
			return 0, nil, err
		}
		var l load
		l.offered, l.arrived, err = d.goodput(ctx, from, to, addr, f*can, dur)
		best = max(best, l.arrived)
		loads = append(loads, l)
	}
	for i := range loads {
		loads[i].offered /= best
		loads[i].arrived /= best
	}
	return best, loads, err
}

// offeredAt and arrivedAt return the metrics of a load, besideAt returns that of beside.
func offeredAt(factor float64) string { return fmt.Sprintf("offered at %g", factor) }
func arrivedAt(factor float64) string { return fmt.Sprintf("arrived at %g", factor) }
func besideAt(factor float64) string  { return fmt.Sprintf("beside %g", factor) }

// measureOverload measures an overload, and beside for each factor.
func (d datagrams) measureOverload(ctx context.Context, from, to, addr string, sink results.Sink) error {
	best, loads, err := d.overload(ctx, from, to, addr, overloadTime)
	if err != nil {
		return err
	}
	sink.Add(throughput, "Gbit/s", best*8/1e9)
	for i, f := range factors {
		sink.Add(offeredAt(f), "of the best", loads[i].offered)
		sink.Add(arrivedAt(f), "of the best", loads[i].arrived)
		left, err := d.beside(ctx, from, to, addr, best, f)
		if err != nil {
			return err
		}
		sink.Add(besideAt(f), "of the best", left/best)
	}
	return nil
}

// beside sends the best that can be carried, and returns how many bytes per second of that
// arrive. At the same time it sends the rest of factor times the best, which the sender's kernel
// drops. A subject can hardly do better if factor times the best is sent to it: what is missing
// is the processor time of the sender.
func (d datagrams) beside(ctx context.Context, from, to, addr string, best, factor float64) (float64, error) {
	waste, err := newWaste(from, d, (factor-1)*best)
	if err != nil {
		return 0, err
	}
	_, arrived, err := d.goodput(ctx, from, to, addr, best, overloadTime)
	return arrived, errors.Join(err, waste.stop())
}

// OverloadOnce measures an overload between existing network namespaces. The arguments are
// [-time D] KIND FROM TO ADDRESS. OverloadOnce prints the best in Mbit/s, and for each factor
// what was offered and what arrived.
func OverloadOnce(ctx context.Context, args []string) error {
	return overloadOnce(ctx, args, os.Stdout)
}

func overloadOnce(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	dur := flags.Duration("time", overloadTime, "how long each factor is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	i := slices.IndexFunc(overloads, func(d datagrams) bool { return d.name == flags.Arg(0) })
	if i < 0 || flags.NArg() != 4 {
		return errors.New("the arguments are full, segments or fragments, and FROM TO ADDRESS")
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 4)
	best, loads, err := overloads[i].overload(ctx, flags.Arg(1), flags.Arg(2), flags.Arg(3), *dur)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%.1f", best*8/1e6)
	for _, l := range loads {
		fmt.Fprintf(w, " %.3f %.3f", l.offered, l.arrived)
	}
	_, err = fmt.Fprintln(w)
	return err
}
