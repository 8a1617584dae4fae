package claims

import (
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// what is the kind of an entry of the trace.
type what uint8

const (
	registered   what = iota + 1 // memory was registered
	deregistered                 // memory is about to be deregistered
	cqMade                       // a completion queue was made
	qpMade                       // a queue pair was made
	connected                    // a queue pair is about to be connected
	sendPosted                   // a work request, of one or more pieces, is about to be posted to a send queue
	recvPosted                   // a work request is about to be posted to a receive queue
	sendDone                     // the completion of a send was polled
	recvDone                     // the completion of a receive was polled
	armed                        // a completion queue is about to be armed
	polledEmpty                  // a completion queue was polled and was empty
	eventRead                    // an event of a completion queue was consumed
	bound                        // a window was bound
	unbound                      // a window is about to be unbound
	qpGone                       // a queue pair is about to be failed or closed
	closing                      // a protection domain is about to be closed with all of its objects
)

// entry is one line of the trace. A field whose comment names no kind is set where it makes sense.
type entry struct {
	at     int       // position on the trace
	when   time.Time // for bound, the time before the bind
	side   string    // name given to the device
	device string    // name of the device itself
	what   what
	domain int // number of the protection domain on the trace
	cq     int // number of the completion queue; for qpMade, of the one for receives
	sendCQ int // qpMade
	vector int // cqMade
	qpn    uint32
	batch  int // posts of one call have the same number

	send   fabric.SendWR
	recv   fabric.RecvWR
	done   fabric.Completion
	access fabric.Access // rights of registered memory
	rkey   uint32
	addr   uint64 // of registered memory
	length int    // of registered memory
	remote fabric.Address
	config fabric.QPConfig
	data   []byte // the data of a send, or the data that a SEND put into a receive
	only   bool   // armed for solicited completions only
}

// trace records the use of the devices of a pair, in an order that respects cause and effect:
// actions are recorded before they are performed, and completions and events after they are
// received.
type trace struct {
	mu      sync.Mutex
	entries []entry
	numbers int
}

// number returns the next unused number, starting with 1.
func (t *trace) number() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.numbers++
	return t.numbers
}

func (t *trace) add(e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.at = len(t.entries)
	if e.when.IsZero() {
		e.when = time.Now()
	}
	t.entries = append(t.entries, e)
}

// dropTrials removes the entries of protection domains that are closed. An endpoint tries the device
// before its first session: when there is one, all its trials are over.
func (t *trace) dropTrials() {
	t.mu.Lock()
	defer t.mu.Unlock()
	closed := map[int]bool{}
	for _, e := range t.entries {
		if e.what == closing {
			closed[e.domain] = true
		}
	}
	t.entries = slices.DeleteFunc(t.entries, func(e entry) bool { return closed[e.domain] })
	for i := range t.entries {
		t.entries[i].at = i
	}
}

// now returns the position of the next entry on the trace.
func (t *trace) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

// pick returns the entries of a side, or of all sides for "", that are of one of kinds.
func (t *trace) pick(side string, kinds ...what) []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []entry
	for _, e := range t.entries {
		if (side == "" || e.side == side) && slices.Contains(kinds, e.what) {
			out = append(out, e)
		}
	}
	return out
}

// ofQP returns the entries of queue pair qpn.
func ofQP(qpn uint32, entries []entry) []entry {
	return filter(entries, func(e entry) bool { return e.qpn == qpn })
}

// between returns the entries at positions from (included) to to (excluded).
func between(entries []entry, from, to int) []entry {
	return filter(entries, func(e entry) bool { return e.at >= from && e.at < to })
}

func filter[T any](in []T, keep func(T) bool) []T {
	var out []T
	for _, e := range in {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}
