package frametest

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

var to, from = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, [6]byte{2, 0, 0, 0, 0, 1}

// TestCorpus expects the corpus to have frames with each finding of vnet.Check, and valid frames.
// The frames from which the corpus is made have to be valid too.
func TestCorpus(t *testing.T) {
	found := make(map[error]int)
	corpus := Corpus(to, from)
	for _, f := range corpus {
		found[vnet.Check(f.Bytes, 1500)]++
	}
	for _, want := range []error{
		nil, vnet.ErrShort, vnet.ErrTooLong, vnet.ErrTag, vnet.ErrFlags, vnet.ErrCsum, vnet.ErrCsumStart, vnet.ErrCsumProto,
		vnet.ErrGSOType, vnet.ErrGSONoCsum,
		vnet.ErrGSOSize, vnet.ErrGSOProto, vnet.ErrGSOHeaders, vnet.ErrHdrLen, vnet.ErrMTU,
	} {
		if found[want] == 0 {
			t.Errorf("none of %d frames has this finding: %v", len(corpus), want)
		}
	}
	for _, b := range bases(to, from) {
		if err := vnet.Check(b.frame, 1500); err != nil && !errors.Is(err, vnet.ErrGSOProto) { // with three tags
			t.Errorf("%s: %v", b.name, err)
		}
	}
	t.Logf("%d frames: %v", len(corpus), found)
}

// TestRandom expects random frames to have all the same findings, except vnet.ErrTooLong.
func TestRandom(t *testing.T) {
	found := make(map[error]int)
	g := NewRandom(1, to, from)
	for range 200_000 {
		found[vnet.Check(g.Next(), 1500)]++
	}
	if len(found) < 13 {
		t.Errorf("findings: %v", found)
	}
}
