package testenv

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// OddWay is one direction between two devices of the network stack, for odd
// frames.
type OddWay struct {
	to, from [6]byte
	offer    func(frames ...[]byte) int
	listener *Listener
	rounds   uint32
}

// OddWays returns both directions between two devices, each given by namespace and name. The
// devices become promiscuous.
func OddWays(t testing.TB, a, b [2]string) [2]*OddWay {
	t.Helper()
	way := func(from, to [2]string) *OddWay {
		mac := func(p [2]string) [6]byte { return [6]byte(Link(t, p[0], p[1]).Attrs().HardwareAddr) }
		return &OddWay{to: mac(to), from: mac(from), offer: offerRaw(t, from[0], from[1]),
			listener: ListenRaw(t, to[0], to[1])}
	}
	return [2]*OddWay{way(a, b), way(b, a)}
}

// Corpus sends every nth frame of the corpus that the kernel accepts. It checks that the frames
// that every switch forwards unchanged arrive unchanged.
func (w *OddWay) Corpus(t testing.TB, nth int) {
	t.Helper()
	var frames []frametest.Frame
	for i, f := range frametest.Corpus(w.to, w.from) {
		if i%nth == 0 {
			frames = append(frames, f)
		}
	}
	for part := range slices.Chunk(frames, 64) {
		var odd [][]byte
		for _, f := range part {
			odd = append(odd, f.Bytes)
		}
		got := w.cross(t, odd)
		for _, f := range part {
			if isOrdinary(f.Bytes) && !slices.ContainsFunc(got, func(g []byte) bool { return bytes.Equal(g, f.Bytes) }) {
				t.Errorf("%s: lost or changed", f.Name)
			}
		}
	}
}

// Random sends n random frames, as far as the kernel accepts them.
func (w *OddWay) Random(t testing.TB, n int, seed uint64) {
	t.Helper()
	random := frametest.NewRandom(seed, w.to, w.from)
	for range (n + 63) / 64 {
		var odd [][]byte
		for range 64 {
			odd = append(odd, bytes.Clone(random.Next()))
		}
		w.cross(t, odd)
	}
}

// cross sends odd frames, and a good one after them. It returns the frames from the sender's
// address that arrive before the good one. It repeats the good one until this arrives, because a
// super-frame of tiny segments can fill a queue of the kernel.
func (w *OddWay) cross(t testing.TB, odd [][]byte) (got [][]byte) {
	t.Helper()
	w.offer(odd...)
	w.rounds++
	mark := slices.Concat(make([]byte, vnet.HdrLen), w.to[:], w.from[:], []byte{0x88, 0xb6})
	mark = append(binary.BigEndian.AppendUint32(mark, w.rounds), make([]byte, 46)...)
	arrived, stopped := make(chan struct{}), make(chan struct{})
	defer func() {
		close(arrived)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			w.offer(mark)
			select {
			case <-arrived:
				return
			case <-again.C:
			}
		}
	}()
	w.listener.Next(func(f []byte) bool {
		if len(f) < vnet.MinFrame || [6]byte(f[vnet.HdrLen+6:]) != w.from {
			return false
		}
		if bytes.Equal(f, mark) {
			return true
		}
		got = append(got, bytes.Clone(f))
		return false
	})
	return got
}

// isOrdinary reports whether every switch forwards the frame unchanged: it has no tag, no offload
// and no group address, and is not IP, which the netfilter of a bridge checks.
func isOrdinary(f []byte) bool {
	if len(f) < vnet.MinFrame || !bytes.Equal(f[:vnet.HdrLen], make([]byte, vnet.HdrLen)) {
		return false
	}
	switch eth := f[vnet.HdrLen:]; binary.BigEndian.Uint16(eth[12:]) {
	case 0x800, 0x806, 0x86dd, 0x8100, 0x88a8, 0x9100, 0x8808, 0x8809, 0x888e, 0x88cc:
		return false
	default:
		return len(eth) <= 1514 && eth[0]&1 == 0
	}
}
