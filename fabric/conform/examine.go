package conform

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// Outcome is how a trial ended.
type Outcome string

// The outcomes.
const (
	// Holds means that the device has the property.
	Holds Outcome = "holds"
	// Lacks means that the device does not have the property, and that splitnic works without it.
	Lacks Outcome = "lacks"
	// Fails means that the device does not have the property, and that splitnic needs it.
	Fails Outcome = "fails"
)

// Finding is the result of testing one property of a device.
type Finding struct {
	Property string  `json:"property"`
	Outcome  Outcome `json:"outcome"`
	// Means is what is true of the device if the property holds.
	Means string `json:"means"`
	// Detail is what was seen where it does not hold, and what follows.
	Detail string `json:"detail,omitempty"`
}

// trials has the properties that may be tested on any adapter. They use their own queue pairs
// and memory, and no operation that is known to stop a device or a kernel. If the first one
// fails, none of the others can be tested.
var trials = []struct {
	name, means string
	without     string // the consequence if the device lacks the property
	try         func(r *fixture) (lacks string)
	// spared is set if splitnic goes without the property where the trial fails, because it makes
	// the same trial, or only if it is asked to.
	spared bool
}{
	{name: "loopback", means: "two queue pairs of the device reach each other", try: holds(tryLoopback)},
	{name: "sizes", means: "writes of all sizes arrive complete, and their length is told", try: holds(testSizes)},
	{name: "pieces", means: "a transfer can be gathered from several pieces of memory",
		without: "small frames are copied together", try: holds(testGatherFrames)},
	{name: "inline data", means: "small transfers are taken over when they are posted",
		without: "the adapter reads small transfers, too", try: holds(tryInline)},
	{name: "empty writes", means: "writes of no bytes need no key, and keep their place between others",
		try: holds(testEmptyWrite)},
	{name: "data before messages", means: "the data of a completed write is there before a later message of another " +
		"queue pair", without: "neither --mode indicate nor an MTU over 65507 is to be used",
		try: holds(testIndication), spared: true},
	{name: "flush", means: "a failed queue pair completes all requests, also later ones, and raises an event",
		without: "sessions look for failed queue pairs, and count such requests as flushed", try: tryFlush},
	{name: "reads", means: "a peer's memory is read", without: "splitnic itself reads none, only programs with its " +
		"library do", try: holds(tryReads), spared: true},
	{name: "moderation", means: "one event can stand for several completions",
		without: "advanced.cq-moderation has no effect", try: holds(tryModeration), spared: true},
	{name: "memory keys", means: "a write with a key that is unknown, stale, of another domain, without the right to " +
		"write or past the end of its region is refused and touches nothing",
		try: holds(func(r *fixture) { r.remoteAccess(fabric.OpWrite) })},
	{name: "windows", means: "a type-2 memory window is bound through the send queue, written through and unbound",
		without: withoutWindows, try: holds(testWindow), spared: true},
	{name: "window bounds", means: "a write past a window's ends, in the region behind it, is refused",
		without: "--protection is region by default; with one-touch each element has a region of its own", try: bounds,
		spared: true},
	{name: "other queue pair", means: "the key of a window is refused on any other queue pair than its own",
		without: withoutWindows, try: holds(testWindowOfOtherQP), spared: true},
	{name: "stale key", means: "the key of an earlier bind is refused, and none comes twice in a row",
		without: withoutWindows, try: holds(testWindowStaleKey), spared: true},
	{name: "next key", means: "both sides can tell the key of the next bind (--protection one-touch)",
		without: withoutWindows, try: holds(testWindowNextKey), spared: true},
	{name: "unbound window", means: "the key of a window that its owner has unbound or closed is refused",
		without: withoutWindows, try: holds(testWindowUnbound), spared: true},
	{name: "invalidation by peer", means: "a message of the peer's makes the key that it names void",
		without: withoutWindows, try: holds(testWindowInvalidatedByPeer), spared: true},
	{name: "bind and send", means: "a window is bound and its key sent to the peer in one post; of a bind that fails no " +
		"key is sent", without: withoutWindows, spared: true, try: holds(func(r *fixture) {
		testWindowBindSend(r)
		testWindowBindSendFails(r)
	})},
	{name: "events", means: "a queue that is armed raises one event, however many completions follow",
		try: holds(testEventOnce)},
	{name: "solicited events", means: "a queue that is armed for solicited completions sleeps through all others",
		without: "each completion raises an event", try: trySolicited},
	{name: "vectors", means: "every completion vector raises the events of its queues", try: holds(testEventVectors)},
}

const withoutWindows = "--protection is region"

// holds returns a trial that runs try and always returns "".
func holds(try func(*fixture)) func(*fixture) string {
	return func(r *fixture) string { try(r); return "" }
}

func tryLoopback(r *fixture) {
	r.connect(fabric.RC)
	r.works()
}

// bounds is the trial of window bounds.
func bounds(r *fixture) string {
	switch taken := r.pastWindow(); {
	case len(taken) == 0:
		return ""
	case len(taken) < len(outsideWindow):
		return fmt.Sprintf("64 bytes written %d bytes from a window's start were taken", taken[0])
	}
	return "writes anywhere in the region were taken"
}

// Examine runs the trials for a user's adapter one after the other. open creates the pair for
// each trial, and Examine closes it. Examine ends early if ctx is done, or after a failure of
// the first trial.
func Examine(ctx context.Context, open func() (Pair, error)) ([]Finding, error) {
	var found []Finding
	for i := range trials {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		pair, err := open()
		if err != nil {
			return found, err
		}
		f := examine(i, pair)
		found = append(found, f)
		if err := errors.Join(pair.A.Close(), pair.B.Close()); err != nil {
			return found, fmt.Errorf("closing the device after the trial %q: %w", f.Property, err)
		}
		if i == 0 && f.Outcome != Holds {
			break
		}
	}
	return found, nil
}

// examine runs trial i.
func examine(i int, pair Pair) Finding {
	var t trial
	c := &trials[i]
	lacks := ""
	t.run(func() {
		pair.anyRefusal = true
		Property{c.name, func(r *fixture) { lacks = c.try(r) }}.Check(&t, pair)
	})
	f := Finding{Property: c.name, Means: c.means, Outcome: Holds}
	switch {
	case len(t.wrong) > 0:
		f.Outcome, f.Detail = Fails, strings.Join(t.wrong, "; ")
		if c.spared {
			f.Outcome = Lacks
		}
	case t.skipped != "":
		f.Outcome, f.Detail = Lacks, t.skipped
	case lacks != "":
		f.Outcome, f.Detail = Lacks, lacks
	}
	if f.Outcome == Lacks && c.without != "" {
		f.Detail += ": " + c.without
	}
	return f
}

// trial is a T that records errors and the reason of a skip.
type trial struct {
	cleanups []func()
	wrong    []string
	skipped  string
}

// run runs f and then the cleanup functions. f may end in any call of a method of the trial.
func (t *trial) run(f func()) {
	t.apart(f)
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		c := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		t.apart(c)
	}
}

// apart runs f in a separate goroutine, which Fatal and Skip can end.
func (t *trial) apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (t *trial) Helper() {}

func (t *trial) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *trial) Failed() bool { return len(t.wrong) > 0 }

func (t *trial) Errorf(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *trial) Skipf(format string, args ...any) {
	t.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (t *trial) Logf(string, ...any) {}

// ExaminePatience is the maximum duration of a step of a trial on a user's adapter.
const ExaminePatience = 5 * time.Second
