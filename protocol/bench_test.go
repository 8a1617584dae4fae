package protocol

import "testing"

// Each benchmark measures the cost of one frame, or of one batch of frames, in its mode.

func BenchmarkWRID(b *testing.B) {
	index := uint16(1) // each call depends on the previous call
	for b.Loop() {
		_, _, index, _ = PackWRID(WRDataWrite, 1, index+1, uint32(index)).Unpack()
	}
	if index == 1 {
		b.Fatal(index)
	}
}

func BenchmarkImm(b *testing.B) {
	length := uint16(1) // each call depends on the previous call
	for b.Loop() {
		if !CanImm(1, 2, int(length)) {
			b.Fatal("cannot")
		}
		_, _, length = PackImm(1, 2, length^2).Unpack()
	}
	if length != 1 && length != 3 {
		b.Fatal(length)
	}
}

func BenchmarkSendData(b *testing.B) {
	const size = 1500
	message := make([]byte, SendDataOverhead+size)
	b.ReportAllocs()
	for b.Loop() {
		PutSendData(message, 7, size)
		if m, err := DecodeSendData(message); err != nil || len(m.Data) != size {
			b.Fatal(m, err)
		}
	}
}

func BenchmarkIndicate(b *testing.B) {
	var indications [16]Indication
	buf := make([]byte, 0, MaxControlSize)
	b.ReportAllocs()
	for b.Loop() {
		m, err := DecodeBufferRDMAIndicate(AppendBufferRDMAIndicate(buf, 1, indications[:]...))
		if err != nil {
			b.Fatal(err)
		}
		for i := range m.Len() {
			if m.At(i) != indications[i] {
				b.Fatal(i)
			}
		}
	}
}

func BenchmarkAppendUpdate(b *testing.B) {
	elements := make([]uint16, 64)
	buf := make([]byte, 0, MaxControlSize)
	b.ReportAllocs()
	for b.Loop() {
		if len(AppendBufferRecvPoolUpdate(buf, 1, PoolReturn{1, elements})) == 0 {
			b.Fatal("nothing")
		}
	}
}
