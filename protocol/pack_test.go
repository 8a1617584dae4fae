package protocol

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// appendPack builds a pack by appending its frames.
func appendPack(frames ...[]byte) []byte {
	b := make([]byte, PackHeaderSize)
	PutPackHeader(b, len(frames))
	for _, f := range frames {
		b = append(b, 0, 0)
		PutPackRecord(b[len(b)-PackRecordSize:], len(f))
		b = append(b, f...)
	}
	return b
}

// unpack returns the frames of a pack.
func unpack(b []byte) (frames [][]byte, err error) {
	p, err := DecodePack(b)
	if err != nil {
		return nil, err
	}
	for p.Left() > 0 {
		f, err := p.Next()
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

func TestPackGolden(t *testing.T) {
	got := appendPack([]byte("abc"), nil, []byte("z"))
	want := []byte{0x80, 0, 0, 3, 0, 3, 'a', 'b', 'c', 0, 0, 0, 1, 'z'}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	frames, err := unpack(got)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]byte{[]byte("abc"), {}, []byte("z")}, frames); d != "" {
		t.Error(d)
	}
}

func TestPackRefused(t *testing.T) {
	good := appendPack([]byte("abc"), []byte("de"))
	many := make([][]byte, MaxPackFrames+1)
	if _, err := unpack(appendPack(many[1:]...)); err != nil {
		t.Errorf("%d frames: %v", MaxPackFrames, err)
	}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"no count", good[:3], ErrShort},
		{"no frames", appendPack(), ErrCount},
		{"too many frames", appendPack(many...), ErrCount},
		{"byte 1", append([]byte{0x80, 1}, good[2:]...), ErrPadding},
		{"cut in a frame", good[:len(good)-1], ErrShort},
		{"cut in a length", good[:10], ErrShort},
		{"trailing", append(bytes.Clone(good), 0), ErrTrailing},
	} {
		if _, err := unpack(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestPackAllocs(t *testing.T) {
	b := appendPack(make([]byte, 60), make([]byte, 60), make([]byte, 60))
	if n := testing.AllocsPerRun(100, func() {
		p, _ := DecodePack(b)
		for p.Left() > 0 {
			if _, err := p.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzPack(f *testing.F) {
	f.Add(appendPack([]byte("abc"), nil))
	f.Add([]byte{0x80, 0, 0, 2, 0, 1, 7, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := unpack(b)
		if err != nil {
			return
		}
		if again := appendPack(frames...); IsPack(b) && !bytes.Equal(again, b) {
			t.Errorf("% x decodes to % x, which encodes as % x", b, frames, again)
		}
	})
}
