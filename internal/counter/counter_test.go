package counter

import (
	"slices"
	"sync/atomic"
	"testing"
)

type some[T any] struct {
	Frames T `json:"rx_frames" metric:"frames" help:"frames received"`
	Late   T `json:"rx_late" metric:"dropped,late" help:"dropped: came late"`
	Posts  T `json:"posts" help:"batches posted"`
}

func TestOf(t *testing.T) {
	want := []Counter{
		{Name: "rx_frames", Direction: "rx", Metric: "frames", Help: "frames received"},
		{Name: "rx_late", Direction: "rx", Metric: "dropped", Part: "late", Help: "dropped: came late"},
		{Name: "posts", Direction: "tx", Help: "batches posted"},
	}
	if got := Of[some[uint64]]("tx"); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestValues(t *testing.T) {
	var from some[atomic.Uint64]
	from.Frames.Store(1)
	from.Late.Store(2)
	from.Posts.Store(3)
	var to some[uint64]
	Snapshot(&to, &from)
	if got := Values([]uint64{7}, &to); !slices.Equal(got, []uint64{7, 1, 2, 3}) {
		t.Errorf("got %v of %+v", got, to)
	}
}
