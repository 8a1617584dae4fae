package tap

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// TestCollect evaluates the results of reads by io_uring. Frames may have arrived between
// two reads.
func TestCollect(t *testing.T) {
	const (
		again    = -int32(unix.EAGAIN)
		canceled = -int32(unix.ECANCELED)
		invalid  = -int32(unix.EINVAL)
		deleted  = -int32(unix.EBADFD)
		tooLong  = 200 // the size of a slot
	)
	for _, tc := range []struct {
		results []int32
		want    string // lengths or errors
		got     int
	}{
		{[]int32{30, 40, 50}, "30 40 50", 3},
		{[]int32{30, 40, again}, "30 40 again", 2},
		{[]int32{again, again, again}, "again", 0},
		{[]int32{again, 40, 50}, "40 50", 2},
		{[]int32{30, again, 50}, "30 50", 2},
		{[]int32{30, again, again, 50, again, 60, again}, "30 50 60 again", 3},
		{[]int32{30, again, tooLong, 50, again}, "30 long 50 again", 3},
		{[]int32{again, invalid, 50}, "invalid 50", 2},
		{[]int32{invalid, 40, tooLong}, "invalid 40 long", 3},
		{[]int32{30, canceled, canceled}, "30", 1},
		{[]int32{canceled, canceled}, "", 0},
		{[]int32{30, deleted, deleted}, "30 deleted", 2},
		{[]int32{again, deleted, 30}, "deleted", 1},
	} {
		q := NewQueue(-1)
		ops := make([]vnet.ReadOp, len(tc.results))
		for i, res := range tc.results {
			ops[i].Slot = make([]byte, tooLong)
			if res > 0 {
				ops[i].Slot[0], ops[i].Slot[res-1] = byte(res), byte(res)
			}
			ops[i].Frame, ops[i].Err = ops[i].Slot, errors.New("of another time")
		}
		done, got, _ := q.collect(ops, tc.results, 0)
		var words []string
		for i := range ops[:done] {
			op := &ops[i]
			switch {
			case op.Err == nil:
				words = append(words, fmt.Sprint(len(op.Frame)))
				if n := byte(len(op.Frame)); op.Frame[0] != n || op.Frame[n-1] != n || &op.Frame[0] != &op.Slot[0] {
					t.Errorf("%v: operation %d has another frame", tc.results, i)
				}
			case errors.Is(op.Err, unix.EAGAIN):
				words = append(words, "again")
			case errors.Is(op.Err, unix.EBADFD):
				words = append(words, "deleted")
			case errors.Is(op.Err, vnet.ErrTooLong):
				words = append(words, "long")
			case errors.Is(op.Err, vnet.ErrInvalid):
				words = append(words, "invalid")
			}
			if op.Err != nil && op.Frame != nil {
				t.Errorf("%v: operation %d has both a frame and %v", tc.results, i, op.Err)
			}
		}
		if s := fmt.Sprint(words); s != "["+tc.want+"]" || got != tc.got {
			t.Errorf("%v: %s, %d there, want %s, %d", tc.results, s, got, tc.want, tc.got)
		}
		if long := slices.Contains(tc.results, tooLong); long != (q.TooLong() == 1) {
			t.Errorf("%v: %d frames counted as too long", tc.results, q.TooLong())
		}
	}
}
