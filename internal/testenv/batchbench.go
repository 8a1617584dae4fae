package testenv

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// BenchBatches measures the time per frame of reading and writing frames, singly and in batches.
// Only the time within the port's calls counts.
func BenchBatches(b *testing.B, r *PortFixture) {
	const n = 64
	for _, size := range []int{60, 1514} {
		frames := r.probes(true, 0, slices.Repeat([]int{size}, n)...)
		ops := Slots(n, vnet.Headroom+vnet.MaxFrame+1)
		read := func(b *testing.B, some []vnet.ReadOp) {
			var spent time.Duration
			total := 0
			for b.Loop() {
				r.Send(frames...)
				for got, end := 0, time.Now().Add(Patience); got < n; {
					start := time.Now()
					k := r.Port.ReadFrames(some)
					if some[k-1].Err != nil {
						k--
					}
					if k > 0 { // calls that find no frame do not count
						spent += time.Since(start)
					} else if start.After(end) {
						b.Fatalf("%d frames of %d came", got, n)
					}
					got += k
					total += k
				}
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(total), "ns/frame")
		}
		b.Run(fmt.Sprintf("read single %d", size), func(b *testing.B) { read(b, ops[:1]) })
		b.Run(fmt.Sprintf("read batch %d", size), func(b *testing.B) { read(b, ops) })

		writes := make([]vnet.WriteOp, n)
		for i := range writes {
			f := r.Probe(false, uint32(i), size)
			copy(f[vnet.HdrLen:], []byte{2, 255, 255, 255, 255, 255}) // an address that nobody has
			writes[i].Head = f
		}
		write := func(b *testing.B, each int) {
			var spent time.Duration
			for b.Loop() {
				start := time.Now()
				for i := 0; i < n; i += each {
					if err := r.writeAll(writes[i : i+each]); err != nil {
						b.Fatal(err)
					}
				}
				spent += time.Since(start)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*n), "ns/frame")
		}
		b.Run(fmt.Sprintf("write single %d", size), func(b *testing.B) { write(b, 1) })
		b.Run(fmt.Sprintf("write batch %d", size), func(b *testing.B) { write(b, n) })
	}
}
