package frametest

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/splitnic/splitnic/vnet"
)

// Random makes an endless sequence of odd frames.
type Random struct {
	r     *rand.Rand
	bases []base
	buf   []byte
}

// NewRandom returns the sequence of a seed. All frames have the source address src.
func NewRandom(seed uint64, dst, src [6]byte) *Random {
	return &Random{r: rand.New(rand.NewPCG(seed, 1)), bases: bases(dst, src)}
}

// Next returns another frame, [virtio_net_hdr | Ethernet frame], which is usable until the next call.
// Half of the frames are valid ones with some changed bytes of their headers, perhaps truncated; the
// others are tags and random bytes.
func (g *Random) Next() []byte {
	r := g.r
	b := &g.bases[r.IntN(len(g.bases))]
	g.buf = append(g.buf[:0], b.frame...)
	if r.IntN(2) == 0 {
		g.tags()
	}
	f := g.buf
	fs := fields(b.l2, b.l4, len(b.frame)-10)
	for range r.IntN(4) {
		field := &fs[r.IntN(len(fs))]
		v := field.values[r.IntN(len(field.values))]
		if r.IntN(4) == 0 {
			v = int(r.Uint32())
		}
		field.put(f, v)
	}
	for range r.IntN(3) {
		f[10+r.IntN(min(len(f)-10, 90))] = byte(r.Uint32())
	}
	switch r.IntN(4) {
	case 0:
		f = f[:r.IntN(min(len(f), 110))]
	case 1:
		f = f[:r.IntN(len(f)+1)]
	}
	return f
}

// tags replaces the bytes after the addresses by tags, of which some are truncated.
func (g *Random) tags() {
	r := g.r
	f := g.buf[:22]
	for range r.IntN(5) {
		f = binary.BigEndian.AppendUint16(f, [...]uint16{0x8100, 0x88a8, 0x9100, 0x8100}[r.IntN(4)])
		f = binary.BigEndian.AppendUint16(f, uint16(r.Uint32()))
	}
	f = f[:22+r.IntN(len(f)-21)]
	for range r.IntN(60) {
		f = append(f, byte(r.Uint32()))
	}
	if len(f) < 24 {
		f = append(f, 0x81, 0)
	}
	if r.IntN(2) == 0 {
		clear(f[:10])
	}
	g.buf = f
}

// places is the number of places in noise at which the content of a frame can begin.
const places = 1 << 16

// noise returns random bytes. Making them anew for each frame would be most of the work of a test
// under the race detector, which notes each write.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, places+vnet.MaxFrame)
	r := rand.New(rand.NewPCG(1, 1))
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
})

// Fill overwrites p, of at most vnet.MaxFrame bytes, with random bytes that follow from seed. Two
// seeds in 65536 have the same bytes.
func Fill(p []byte, seed uint64) {
	copy(p, noise()[rand.NewPCG(seed, 1).Uint64()%places:])
}
