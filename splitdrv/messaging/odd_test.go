package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// oddPort is a port that reads the frames given by the test, which have any length, and keeps
// the frames written to it.
type oddPort struct {
	fd int // eventfd(2); readable while there are frames

	mu      sync.Mutex
	in      [][]byte
	out     [][]byte
	arrived chan struct{} // receives when the frame that ends a round is in out
}

func newOddPort(t testing.TB) *oddPort {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &oddPort{fd: fd, arrived: make(chan struct{}, 1)}
}

// FD implements porttest.Single.
func (p *oddPort) FD() int { return p.fd }

// ReadFrame implements porttest.Single.
func (p *oddPort) ReadFrame(slot []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.in) == 0 {
		var b [8]byte
		_, _ = unix.Read(p.fd, b[:])
		return nil, unix.EAGAIN
	}
	frame := p.in[0]
	p.in = p.in[1:]
	if len(frame) > vnet.MaxFrame {
		return nil, vnet.ErrTooLong
	}
	n := copy(slot, frame)
	copy(slot[n:], leftover)
	return slot[:n], nil
}

// WriteFrame implements porttest.Single.
func (p *oddPort) WriteFrame(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, bytes.Clone(frame))
	if isMark(frame) {
		select {
		case p.arrived <- struct{}{}:
		default:
		}
	}
	return nil
}

// has adds frames to be read from the port.
func (p *oddPort) has(frames [][]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in = append(p.in, frames...)
	_, err := unix.Write(p.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// took returns the frames written to the port since the last call.
func (p *oddPort) took() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.out
	p.out = nil
	return out
}

var (
	oddDst = [6]byte{2, 0, 0, 0, 0, 2}
	oddSrc = [6]byte{2, 0, 0, 0, 0, 1}
)

// mark returns the valid frame that ends a round.
func mark() []byte {
	f := slices.Concat(make([]byte, vnet.HdrLen), oddDst[:], oddSrc[:], []byte{0x88, 0xb6}, []byte("this ends a round"))
	return append(f, make([]byte, 46)...)
}

var theMark = mark()

func isMark(f []byte) bool { return bytes.Equal(f, theMark) }

// leftover is behind a frame in its slot, as if left by an earlier frame.
var leftover = bytes.Repeat([]byte{0xa5}, 80)

// oddRig is a session between two ports with odd frames.
type oddRig struct {
	t     testing.TB
	mtu   int
	conns [2]*messaging.Conn
	ports [2]*oddPort
	sent  [2]int // number of frames given to each port
}

func newOddRig(t testing.TB, cfg messaging.Config) *oddRig {
	n := fabrictest.New()
	g := &oddRig{t: t, mtu: 1500}
	cfg.MTU, cfg.PeerTimeout = g.mtu, time.Minute
	for i, name := range []string{"a", "b"} {
		dev := n.Device(name)
		c := cfg
		c.Device = dev
		conn, err := messaging.New(c)
		if err != nil {
			t.Fatal(err)
		}
		g.conns[i], g.ports[i] = conn, newOddPort(t)
		t.Cleanup(func() {
			if err := errors.Join(conn.Close(), dev.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	for i, conn := range g.conns {
		if err := conn.Connect(g.conns[1-i].Addresses(), g.conns[1-i].ControlReceives()); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range g.conns {
		if err := conn.Start([]messaging.Port{porttest.Batched{Single: g.ports[i]}}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// round gives each port its frames, followed by a mark, and compares what arrives at the other
// port.
func (g *oddRig) round(a, b [][]byte) error {
	ctx, cancel := context.WithTimeoutCause(g.t.Context(), time.Minute, errors.New("a round took over a minute"))
	defer cancel()
	frames := [2][][]byte{a, b}
	for i := range g.ports {
		round := append(slices.Clone(frames[i]), mark())
		if err := g.ports[i].has(round); err != nil {
			return err
		}
		g.sent[i] += len(round)
	}
	for i, port := range g.ports {
		select {
		case <-port.arrived:
		case <-g.conns[0].Done():
			return fmt.Errorf("a's session has ended: %w", g.conns[0].Err())
		case <-g.conns[1].Done():
			return fmt.Errorf("b's session has ended: %w", g.conns[1].Err())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := g.compare(frames[1-i], port.took()); err != nil {
			return fmt.Errorf("towards %c: %w", "ab"[i], err)
		}
	}
	return nil
}

// compare looks up the received frames among those sent, in order. All frames without any
// offload, and no longer than the MTU allows, must have arrived, and all other valid frames, and
// those whose checksum the sender completes. No frame may have arrived that the rules forbid.
func (g *oddRig) compare(sent, got [][]byte) error {
	if len(got) == 0 || !isMark(got[len(got)-1]) {
		return errors.New("the good frame is not the last one")
	}
	got = got[:len(got)-1]
	for _, f := range sent {
		finding := vnet.Check(f, g.mtu)
		cut, completed := errors.Is(finding, vnet.ErrTag), errors.Is(finding, vnet.ErrCsumProto)
		switch {
		case len(got) > 0 && (bytes.Equal(got[0], f) || cut && isPadded(f, got[0]) || completed && isCompleted(f, got[0])):
			if err := vnet.Check(got[0], g.mtu); err != nil {
				return fmt.Errorf("% x has arrived: %w", got[0][:min(len(f), 80)], err)
			}
			got = got[1:]
		case len(f) >= vnet.MinFrame && bytes.Equal(f[:vnet.HdrLen], make([]byte, vnet.HdrLen)) &&
			len(f) <= vnet.HdrLen+g.mtu+18:
			return fmt.Errorf("a plain frame is lost or changed: % x", f[:min(len(f), 80)])
		case finding == nil:
			return fmt.Errorf("a good frame is lost or changed: % x", f[:min(len(f), 80)])
		case completed && len(f) <= vnet.HdrLen+g.mtu+18:
			return fmt.Errorf("a frame with an odd checksum is lost or changed: % x", f[:min(len(f), 80)])
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("%d frames have arrived that nobody has sent, the first one % x", len(got),
			got[0][:min(len(got[0]), 80)])
	}
	return nil
}

// isPadded reports whether got is f, padded with zeros to 60 bytes.
func isPadded(f, got []byte) bool {
	return len(got) == vnet.HdrLen+60 && bytes.Equal(got[:len(f)], f) && len(bytes.Trim(got[len(f):], "\x00")) == 0
}

// isCompleted reports whether got is f with an empty virtio header, and with another checksum.
func isCompleted(f, got []byte) bool {
	if len(got) != len(f) || len(bytes.Trim(got[:vnet.HdrLen], "\x00")) != 0 {
		return false
	}
	var h vnet.Header
	h.Decode(f)
	at := vnet.HdrLen + int(h.CsumStart) + int(h.CsumOffset)
	return bytes.Equal(got[vnet.HdrLen:at], f[vnet.HdrLen:at]) && bytes.Equal(got[at+2:], f[at+2:])
}

// books stops the session, and checks that each frame is in a counter.
func (g *oddRig) books() {
	for _, c := range g.conns {
		c.Stop()
	}
	for i, c := range g.conns {
		tx, rx := c.Stats().Channels[0], g.conns[1-i].Stats().Channels[0]
		dropped := tx.TxTooLong + tx.TxInvalid + tx.TxMalformed
		if tx.TxFrames+dropped != uint64(g.sent[i]) {
			g.t.Errorf("of %d frames %d were sent and %d dropped", g.sent[i], tx.TxFrames, dropped)
		}
		if rx.RxMalformed+rx.RxDropped != 0 {
			g.t.Errorf("the receiver had to drop %d malformed frames, and the netdevice refused %d", rx.RxMalformed,
				rx.RxDropped)
		}
		g.t.Logf("%d frames: %d sent, %d malformed, %d padded, %d too long", g.sent[i], tx.TxFrames, tx.TxMalformed,
			tx.TxPadded, tx.TxTooLong)
	}
}

// oddConfigs returns configurations of all modes: with small frames copied into packs, without
// packs, with gathered packs, and with all frames copied.
func oddConfigs() (all []messaging.Config) {
	for _, mode := range protocol.Modes() {
		all = append(all, messaging.Config{Mode: mode}, messaging.Config{Mode: mode, NoPack: true},
			messaging.Config{Mode: mode, PackCopy: -1}, messaging.Config{Mode: mode, PackCopy: messaging.MaxPackCopy})
	}
	return all
}

// TestOddFrames sends the whole corpus from both sides, and then random frames, different ones
// from each side: 4,000 in each configuration, or SPLITNIC_ODD_FRAMES in total. No session may
// end, valid frames must arrive unchanged, and all others must be in a counter.
func TestOddFrames(t *testing.T) {
	configs := oddConfigs()
	random, seed := 4_000, rand.Uint64()
	if s := os.Getenv("SPLITNIC_ODD_FRAMES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		random = n / len(configs) / 2
	}
	if s := os.Getenv("SPLITNIC_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SPLITNIC_SEED=%d", seed)
	corpus := frametest.Corpus(oddDst, oddSrc)
	for i, cfg := range configs {
		t.Run(fmt.Sprintf("%s no packs %t, copied %d", cfg.Mode, cfg.NoPack, cfg.PackCopy), func(t *testing.T) {
			g := newOddRig(t, cfg)
			const burst = 200
			for part := range slices.Chunk(corpus, burst) {
				var frames [][]byte
				for _, f := range part {
					frames = append(frames, f.Bytes)
				}
				if err := g.round(frames, frames); err != nil {
					t.Fatalf("among %q to %q: %v", part[0].Name, part[len(part)-1].Name, err)
				}
			}
			a := frametest.NewRandom(seed+2*uint64(i), oddDst, oddSrc)
			b := frametest.NewRandom(seed+2*uint64(i)+1, oddDst, oddSrc)
			for done := 0; done < random; done += burst {
				if err := g.round(randomFrames(a, burst), randomFrames(b, burst)); err != nil {
					t.Fatal(err)
				}
			}
			g.books()
		})
	}
}

func randomFrames(r *frametest.Random, n int) (all [][]byte) {
	for range n {
		all = append(all, bytes.Clone(r.Next()))
	}
	return all
}

// FuzzOddFrames gives both ports two frames of any bytes, in a session whose mode and packing
// are also fuzzed.
func FuzzOddFrames(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	corpus := frametest.Corpus(oddDst, oddSrc)
	for range 50 {
		f.Add(uint8(r.UintN(16)), corpus[r.IntN(len(corpus))].Bytes, corpus[r.IntN(len(corpus))].Bytes)
	}
	f.Fuzz(func(t *testing.T, mode uint8, first, second []byte) {
		if len(first) > 1<<16+1 || len(second) > 1<<16+1 {
			return
		}
		modes := protocol.Modes()
		cfg := messaging.Config{Mode: modes[int(mode)%len(modes)], NoPack: mode&4 != 0}
		if mode&8 != 0 {
			cfg.PackCopy = -1
		}
		g := newOddRig(t, cfg)
		for _, frames := range [][][]byte{{first}, {second, first}} {
			if err := g.round(frames, frames); err != nil {
				t.Fatal(err)
			}
		}
		g.books()
	})
}
