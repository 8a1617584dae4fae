package protocol

import "testing"

func BenchmarkPack(b *testing.B) {
	frames := make([][]byte, 16)
	for i := range frames {
		frames[i] = make([]byte, 118)
	}
	pack := appendPack(frames...)
	b.ReportAllocs()
	for b.Loop() {
		p, err := DecodePack(pack)
		if err != nil {
			b.Fatal(err)
		}
		for p.Left() > 0 {
			if f, err := p.Next(); err != nil || len(f) != len(frames[0]) {
				b.Fatal(len(f), err)
			}
		}
	}
}
