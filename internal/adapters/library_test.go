//go:build cgo

package adapters_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/adapters"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// TestRDMAAdapterLibrary runs itself with the library as each family, and compares what the
// verbs do with the facts.
func TestRDMAAdapterLibrary(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedRDMA(t, 2)
	if f := adapters.Named(testenv.AdapterFamily()); f != nil {
		checkFamily(t, f)
		return
	}
	for _, f := range adapters.All() {
		t.Run(f.Name, func(t *testing.T) { again(t, "TestRDMAAdapterLibrary", f.Name, "facts.txt") })
	}
}

// again runs a test of this package in another process, which sees adapters of the family.
func again(t *testing.T, test, family, facts string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), testenv.Adapter(t, family, facts)...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test+" ") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answered checks that an operation ended as the driver answers.
func answered(t *testing.T, what string, err error, want adapters.Answer) {
	t.Helper()
	var no syscall.Errno
	switch {
	case want.OK():
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case !errors.As(err, &no) || no != want.Errno():
		t.Errorf("%s: %v, want %v", what, err, want.Errno())
	}
}

// end is one end of a connection.
type end struct {
	dev        *verbs.Context
	dom        fabric.Domain
	send, recv *verbs.CQ
	qp         *verbs.QP
	mem        []byte
	mr         fabric.Region
}

const (
	memory = 4096
	// inlined is what sessions ask for.
	inlined  = 220
	receives = 4
)

func newEnd(t *testing.T, device string) *end {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	check(t, err)
	t.Cleanup(func() { check(t, unix.Munmap(mem)) })
	e := &end{mem: mem}
	e.dev, err = verbs.Open(device)
	check(t, err)
	t.Cleanup(func() { check(t, e.dev.Close()) })
	e.dom, err = e.dev.NewDomain()
	check(t, err)
	e.mr, err = e.dom.Register(mem, fabric.LocalWrite|fabric.RemoteWrite)
	check(t, err)
	for _, cq := range []**verbs.CQ{&e.send, &e.recv} {
		made, err := e.dom.NewCQ(64, 0)
		check(t, err)
		*cq = made.(*verbs.CQ)
	}
	qp, err := e.dom.NewQP(e.config(fabric.RC))
	check(t, err)
	e.qp = qp.(*verbs.QP)
	return e
}

func (e *end) config(tr fabric.Transport) fabric.QPConfig {
	return fabric.QPConfig{Transport: tr, SendCQ: e.send, RecvCQ: e.recv, MaxSend: 16, MaxRecv: 16, MaxInline: inlined}
}

// newPair returns connected ends on both devices.
func newPair(t *testing.T) (a, b *end) {
	t.Helper()
	names := testenv.NeedRDMA(t, 2)
	a, b = newEnd(t, names[0]), newEnd(t, names[1])
	check(t, a.qp.Connect(b.qp.Address(), fabric.Timing{}))
	check(t, b.qp.Connect(a.qp.Address(), fabric.Timing{}))
	for range receives {
		_, err := b.qp.PostRecv([]fabric.RecvWR{{}})
		check(t, err)
	}
	return a, b
}

// write returns a signaled write of n bytes to the beginning of the peer's memory.
func (e *end) write(peer *end, n int, flags fabric.Flags) fabric.SendWR {
	return fabric.SendWR{
		Op: fabric.OpWrite, Flags: fabric.Signaled | flags, Addr: uint64(uintptr(unsafe.Pointer(&e.mem[0]))), Len: uint32(n),
		LKey: e.mr.LKey(), RemoteAddr: uint64(uintptr(unsafe.Pointer(&peer.mem[0]))), RKey: peer.mr.RKey(),
	}
}

// post posts one request, and returns why it was refused.
func (e *end) post(wr fabric.SendWR) error {
	_, err := e.qp.PostSend([]fabric.SendWR{wr})
	return err
}

// poll waits for n completions.
func poll(t *testing.T, cq *verbs.CQ, n int) []fabric.Completion {
	t.Helper()
	out := make([]fabric.Completion, n)
	got := 0
	testenv.Eventually(t, func() bool {
		k, err := cq.Poll(out[got:])
		check(t, err)
		got += k
		return got == n
	}, "%d completions", n)
	return out
}

func checkFamily(t *testing.T, f *adapters.Family) {
	names := testenv.NeedRDMA(t, 2)
	devices, err := verbs.Devices()
	check(t, err)
	for _, d := range devices {
		if d.Driver != f.Driver {
			t.Errorf("%s has the driver %q, want %q", d.Name, d.Driver, f.Driver)
		}
	}
	if f.Transport != "infiniband" {
		if _, err := verbs.Open(names[0]); !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("it was opened: %v", err)
		}
		return
	}
	a, b := newPair(t)
	checkCapabilities(t, f, a)
	checkRequests(t, f, a, b)
	checkEvents(t, f)
	checkFlush(t, f, b)
	noQueuePairEvent(t, b)
}

// checkEvents compares the events of both ends when the device refuses a write.
func checkEvents(t *testing.T, f *adapters.Family) {
	a, b := newPair(t)
	wr := a.write(b, 1, 0)
	wr.RKey ^= 0x5500
	check(t, a.post(wr))
	if c := poll(t, a.send, 1)[0]; c.Status != fabric.StatusRemAccessErr {
		t.Errorf("a write with an unknown key: %+v", c)
	}
	for _, c := range poll(t, b.recv, receives) {
		if c.Status != fabric.StatusWRFlushErr {
			t.Errorf("a receive of the failed queue pair: %+v", c)
		}
	}
	types := map[string]fabric.EventType{"fatal": fabric.EventQPFatal, "access": fabric.EventQPAccessErr}
	if typ, raised := types[f.QPEvents]; raised {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ev, err := b.dev.WaitEvent(ctx)
		if want := (fabric.Event{Type: typ, QPN: b.qp.Num()}); err != nil || ev != want {
			t.Errorf("the event is %+v, error %v, want %+v", ev, err, want)
		}
	}
	noQueuePairEvent(t, a)
	noQueuePairEvent(t, b)
}

// noQueuePairEvent checks that no asynchronous event of a queue pair is left to be read.
func noQueuePairEvent(t *testing.T, e *end) {
	t.Helper()
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for {
		ev, err := e.dev.WaitEvent(soon)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		check(t, err)
		if ev.QPN != 0 {
			t.Errorf("an event %v", ev)
		}
	}
}

// checkCapabilities compares what the device announces and grants.
func checkCapabilities(t *testing.T, f *adapters.Family, e *end) {
	const softRoCE = 32 // pieces of a request
	l := e.dev.Limits()
	if l.MaxSGE != min(f.SGE, softRoCE) || l.Windows != (f.Windows != "none") || l.Moderation != f.Moderation.OK() {
		t.Errorf("limits %+v", l)
	}
	if a := e.dev.Attr(); a.MemWindow2A != (f.Windows == "2A") || a.MemWindow2B != (f.Windows == "2B") {
		t.Errorf("windows: %+v", a)
	}
	granted := min(f.InlineMax, inlined)
	switch {
	case f.LateInline: // verbs knows these drivers
		granted = 0
	case f.Inline == "refuses" && f.InlineMax < inlined:
		granted = 0
		for _, step := range []int{32, 64, 96, 128} { // of package verbs
			if step <= f.InlineMax {
				granted = step
			}
		}
	}
	if got := e.qp.MaxInline(); got != granted {
		t.Errorf("%d bytes inline were granted, want %d", got, granted)
	}
	qp, err := e.dom.NewQP(e.config(fabric.UC))
	answered(t, "create a UC queue pair", err, f.UC)
	if err == nil {
		check(t, qp.Close())
	}
	if f.Windows != "none" {
		w, err := e.dom.NewWindow()
		answered(t, "allocate a window", err, f.AllocMW)
		if err == nil {
			check(t, w.Close())
		}
	}
	answered(t, "arm for solicited completions", e.recv.Arm(true), f.ArmSolicited)
	answered(t, "moderate", e.recv.Moderate(8, 0), f.Moderation)
	_, err = e.qp.QueryState()
	answered(t, "query the queue pair", err, f.QueryQP)
}

// checkRequests compares what the device does with writes.
func checkRequests(t *testing.T, f *adapters.Family, a, b *end) {
	a.mem[0] = 1
	wr := a.write(b, 1, 0)
	wr.Op, wr.Imm = fabric.OpWriteImm, 7
	check(t, a.post(wr))
	if c := poll(t, b.recv, 1)[0]; c.Status != fabric.StatusSuccess || c.Imm != 7 || b.mem[0] != 1 {
		t.Errorf("write with immediate data: %+v, memory %d", c, b.mem[0])
	}
	poll(t, a.send, 1)
	answered(t, "a solicited write", a.post(a.write(b, 1, fabric.Solicited)), f.SolicitedWrite)
	if f.SolicitedWrite.OK() {
		poll(t, a.send, 1)
	}
	if !f.ArmSolicited.OK() {
		return
	}
	// A SEND that is not solicited raises an event where solicited-only means nothing.
	check(t, b.recv.Arm(true))
	_, err := b.recv.ReadEvent()
	check(t, err)
	wr.Flags = fabric.Signaled
	check(t, a.post(wr))
	poll(t, b.recv, 1)
	poll(t, a.send, 1)
	if !f.ArmsAny {
		if event, err := b.recv.ReadEvent(); event || err != nil {
			t.Errorf("an event %t for a completion that is not solicited, error %v", event, err)
		}
		return
	}
	waitEvent(t, b.recv)
}

func waitEvent(t *testing.T, cq *verbs.CQ) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, cq.Wait(ctx))
}

// checkFlush compares what the device does in the error state.
func checkFlush(t *testing.T, f *adapters.Family, e *end) {
	check(t, e.recv.Arm(false))
	for {
		event, err := e.recv.ReadEvent()
		check(t, err)
		if !event {
			break
		}
		check(t, e.recv.Arm(false))
	}
	check(t, e.qp.Fail())
	if f.FlushWakes {
		waitEvent(t, e.recv)
	}
	left := receives - 1
	if f.ArmSolicited.OK() {
		left-- // of checkRequests
	}
	for _, c := range poll(t, e.recv, left) {
		if c.Status != fabric.StatusWRFlushErr {
			t.Errorf("flushed: %+v", c)
		}
	}
	if event, err := e.recv.ReadEvent(); event || err != nil {
		t.Errorf("an event %t for a flush, error %v", event, err)
	}
	_, err := e.qp.PostRecv([]fabric.RecvWR{{}})
	answered(t, "a receive in the error state", err, f.PostInError)
	answered(t, "a send in the error state", e.post(e.write(e, 1, 0)), f.PostInError)
}

// TestRDMAAdapterLateInline has an adapter of which package verbs does not know that it reads
// inline data late: data that changes after the post is sent changed.
func TestRDMAAdapterLateInline(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedRDMA(t, 2)
	family := testenv.AdapterFamily()
	if family == "" {
		text, err := os.ReadFile("facts.txt")
		check(t, err)
		var changed []string
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "mana "); ok {
				late := strings.Replace(rest, " mana ", " other ", 1) // the driver
				changed = append(changed, "late "+late, "copied "+strings.Replace(late, " late ", " copied ", 1))
			}
		}
		file := filepath.Join(t.TempDir(), "facts.txt")
		check(t, os.WriteFile(file, []byte(strings.Join(changed, "")), 0o600))
		for _, family := range []string{"late", "copied"} {
			t.Run(family, func(t *testing.T) { again(t, "TestRDMAAdapterLateInline", family, file) })
		}
		return
	}
	a, b := newPair(t)
	if got := a.qp.MaxInline(); got != inlined {
		t.Fatalf("%d bytes inline were granted", got)
	}
	changed := false
	for i := 0; i < 100 && !changed; i++ { // this process may be slower than the device
		a.mem[0] = 1
		check(t, a.post(a.write(b, 1, fabric.Inline)))
		a.mem[0] = 2
		if c := poll(t, a.send, 1)[0]; c.Status != fabric.StatusSuccess {
			t.Fatalf("%+v", c)
		}
		changed = b.mem[0] == 2
	}
	if changed != (family == "late") {
		t.Errorf("data that changed after the post was sent changed: %t", changed)
	}
}
