package tx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// emptyPort has no frames, whatever its event says.
type emptyPort struct{ *epoll.Event }

func (emptyPort) ReadFrames(ops []vnet.ReadOp) int {
	ops[0].Err = unix.EAGAIN
	return 1
}

func (emptyPort) WriteFrames(ops []vnet.WriteOp) int { return len(ops) }

type pacedPort struct{ emptyPort }

func (pacedPort) ReadHold() time.Duration  { return 0 }
func (pacedPort) WriteHold() time.Duration { return 0 }

// TestOneWaiter expects that frames wake a sender that waits for them once, and one that waits for
// something else not at all.
func TestOneWaiter(t *testing.T) {
	for _, paced := range []bool{false, true} {
		s := newIdle(t, protocol.ModeImm, usual(), 0, pools.Options{})
		e, err := s.c.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		var port core.Port = emptyPort{e}
		if paced {
			port = pacedPort{emptyPort{e}}
		}
		if err := s.Begin(port, new(atomic.Pointer[vnet.Keys])); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct{ mask, waiters int }{
			{waitPort, 1}, {0, 0}, {waitCompletion, 0}, {waitPort | waitCompletion, 1}, {0, 0},
		} {
			if err := s.watch(tc.mask); err != nil {
				t.Fatal(err)
			}
			if n := waiting(t, port.FD()); n != tc.waiters {
				t.Errorf("with a port that is paced: %v, with mask %d a frame wakes %d waiters, want %d", paced, tc.mask, n,
					tc.waiters)
			}
		}
	}
}

// latePort has a frame that comes when the port was found empty for the first time.
type latePort struct {
	emptyPort
	reads int
}

func (p *latePort) ReadFrames(ops []vnet.ReadOp) int {
	p.reads++
	if p.reads != 2 {
		return p.emptyPort.ReadFrames(ops)
	}
	ops[0].Frame, ops[0].Err = ops[0].Slot[:vnet.MinFrame], nil
	return 1
}

// TestLateFrame has a frame come when a sender has found its port empty, and does not yet wait for
// frames, because it has waited for something else before. The kernel does not tell Go's poller of
// such a frame. The test expects it to be read before the sender sleeps.
func TestLateFrame(t *testing.T) {
	p := newPacking(t, protocol.ModeImm, usual(), 0, packSlotSize)
	e, err := p.c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	port := &latePort{emptyPort: emptyPort{e}}
	if err := errors.Join(p.Begin(port, new(atomic.Pointer[vnet.Keys])), p.watch(0)); err != nil {
		t.Fatal(err)
	}
	if ended, err := p.work(); ended || err != nil {
		t.Fatalf("ended: %v, %v", ended, err)
	}
	if n := p.Count.TxFrames.Load(); n != 1 || p.mask != waitPort || !p.Queue.Asleep.Load() {
		t.Errorf("after %d reads %d frames were sent, and the sender waits for %d", port.reads, n, p.mask)
	}
}

// waiting returns how many epoll(7) instances of this process wait until a descriptor can be read.
func waiting(t *testing.T, fd int) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no descriptors: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has been closed
		}
		for line := range strings.Lines(string(text)) {
			var target int
			var events uint32
			if _, err := fmt.Sscanf(line, "tfd: %d events: %x", &target, &events); err == nil && target == fd &&
				events&unix.EPOLLIN != 0 {
				n++
			}
		}
	}
	return n
}
