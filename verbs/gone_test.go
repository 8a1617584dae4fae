//go:build cgo

package verbs

import (
	"errors"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

// TestGivenUp lets calls that destroy objects fail in turn. Up to the first that says that the
// device is gone, the errors count.
func TestGivenUp(t *testing.T) {
	for _, gone := range []syscall.Errno{syscall.EIO, syscall.ENODEV} {
		var c Context
		for i, step := range []struct{ no, want syscall.Errno }{
			{0, 0}, {syscall.EBUSY, syscall.EBUSY}, {syscall.EINVAL, syscall.EINVAL},
			{gone, 0}, {syscall.EBUSY, 0}, {0, 0},
		} {
			if got := c.given(step.no); got != step.want {
				t.Errorf("%v, step %d: %v, want %v", gone, i, got, step.want)
			}
		}
		c = Context{}
		busy := opErr("a", "destroy", syscall.EBUSY, "")
		if err := c.givenErr(busy); !errors.Is(err, syscall.EBUSY) || c.givenErr(nil) != nil {
			t.Errorf("%v before", err)
		}
		if err := errors.Join(c.givenErr(opErr("a", "move", gone, "")), c.givenErr(busy)); err != nil {
			t.Errorf("%v of a device that is gone", err)
		}
	}
}

// TestRefresh expects that the events of a port make what was read be read again, and no others.
func TestRefresh(t *testing.T) {
	for typ := range fabric.EventType(len(fabric.EventKeys())) {
		var c Context
		ev := makeEvent(typ, 7)
		c.Refresh(ev)
		if n := c.changes.Load(); (n != 0) != (ev.Port == 7) {
			t.Errorf("%v: %d changes", typ, n)
		}
	}
}
