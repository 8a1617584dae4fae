package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// ErrNoSession is wrapped by errors about what only an I/O unit can do, while
// there is none.
var ErrNoSession = errors.New("there is no session with an I/O unit")

// attachment is one session with an I/O unit and everything it holds. It is open
// first, then in use, then retired. One on standby stays open for as long as it
// lives: the I/O unit keeps the port on its network card down.
type attachment struct {
	addr    string // of the I/O unit
	client  *session.Client
	conn    *messaging.Conn
	change  int             // of handling, that it was made with
	welcome session.Welcome // guarded by netdev.mu until it is in use, and the same from then on
	since   time.Time       // in use; guarded by netdev.mu
	stages  []uplink.Stage
	drain   drain
}

// lives reports whether a session that is open has not ended.
func (a *attachment) lives() bool { return a.client.Err() == nil && a.conn.Err() == nil }

// reaches waits for a sign of life over the fabric. The bootstrap connection may
// go where RDMA does not: without this there would be sessions, and a carrier,
// through which no frame ever comes, until the I/O unit's silence is noticed.
func (a *attachment) reaches(ctx context.Context) error {
	err := a.conn.Reach(ctx)
	if err == nil {
		return nil
	}
	if ended := a.conn.Err(); ended != nil {
		err = ended
	}
	return fmt.Errorf("no answer over the fabric: %w; do RDMA packets (RoCE v2: UDP port 4791) get through between the RDMA devices of both sides?", err)
}

// binding ties the channels to the bootstrap connection; nil if the I/O unit cannot.
func (a *attachment) binding() (*messaging.Binding, error) {
	if !a.welcome.Grants(protocol.FeatureBind) {
		return nil, nil
	}
	secret, err := a.client.Binding()
	if err != nil {
		return nil, fmt.Errorf("bind the session: %w", err)
	}
	return messaging.NewBinding(secret, true), nil
}

// directSend is how long it may take to hand a message about direct connections to the I/O
// unit.
const directSend = time.Second

// send sends a message over a session that is granted direct connections.
func (a *attachment) send(m *session.Direct) error {
	if a == nil || !a.welcome.Grants(protocol.FeatureDirect) {
		return ErrNoSession
	}
	return a.client.SendDirect(m, directSend)
}

// drain is what the I/O unit of a session asks for. It may be used by any goroutine.
type drain struct {
	on      atomic.Bool
	stays   atomic.Pointer[string] // why the host does not go, for the status; nil: nothing was tried yet
	changed chan struct{}          // of capacity one
}

// ask notes that the I/O unit drains, or does so no longer.
func (d *drain) ask(on bool) {
	d.on.Store(on)
	d.stays.Store(nil)
	signal(d.changed)
}

// stopwatch measures stages, one after the other.
type stopwatch struct {
	last   time.Time
	stages []uplink.Stage
	onLap  func() // may be nil
}

func (w *stopwatch) lap(name string) {
	now := time.Now()
	w.stages = append(w.stages, uplink.Stage{Name: name, Took: now.Sub(w.last)})
	w.last = now
	if w.onLap != nil {
		w.onLap()
	}
}

// retired are sessions that are being taken down in the background: neither a dead
// I/O unit nor the deregistration of memory holds up the next session.
type retired struct {
	log     *slog.Logger
	mu      sync.Mutex
	pending int
	fewer   sync.Cond // of mu
}

// end ends a session that is not in use any more.
func (r *retired) end(a *attachment, code session.Code, reason string) {
	r.add(func() {
		if err := errors.Join(a.client.Bye(code, reason), a.conn.Close()); err != nil {
			r.log.Debug("end of a session", "iounit", a.addr, "error", err)
		}
	})
}

// endUnused ends a session that was never in use; nil is none.
func (r *retired) endUnused(b *attachment) {
	if b != nil {
		r.end(b, session.CodeShuttingDown, "it is not needed")
	}
}

// add has something done in the background.
func (r *retired) add(do func()) {
	r.mu.Lock()
	r.pending++
	r.mu.Unlock()
	go func() {
		do()
		r.mu.Lock()
		r.pending--
		r.mu.Unlock()
		r.fewer.Broadcast()
	}()
}

// wait waits until there are none and reports whether there were any.
func (r *retired) wait() (waited bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.pending > 0; waited = true {
		r.fewer.Wait()
	}
	return waited
}
