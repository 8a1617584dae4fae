package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// ErrNoSession is wrapped by errors of operations that need a session with an I/O unit.
var ErrNoSession = errors.New("there is no session with an I/O unit")

// attachment is one session with an I/O unit, with everything that belongs to it. Its states
// are open, in use, retired. A session on standby stays open; the I/O unit keeps the LAN
// interface of the host down.
type attachment struct {
	addr    string // address of the I/O unit
	client  *session.Client
	conn    *messaging.Conn
	change  int             // number of the handling with which it was made
	welcome session.Welcome // guarded by netdev.mu until the session is in use; constant afterwards
	since   time.Time       // when it came into use; guarded by netdev.mu
	stages  []uplink.Stage
	drain   drain
	direct  direct.Session
}

func (a *attachment) Unit() string { return a.addr }

// lives reports whether an open session has not ended.
func (a *attachment) lives() bool { return a.client.Err() == nil && a.conn.Err() == nil }

// reaches waits for an answer over the fabric. The bootstrap connection may work where RDMA
// does not. Without this check, such a session would be used, and the netdevice would have a
// carrier without passing frames, until the peer time-out.
func (a *attachment) reaches(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.client.Done(): // the I/O unit may have noticed it first
			cancel()
		case <-ctx.Done():
		}
	}()
	err := a.conn.Reach(ctx)
	if err == nil {
		return nil
	}
	if ended := cmp.Or(a.conn.Err(), a.client.Err()); ended != nil {
		err = ended
	}
	return fmt.Errorf("no answer over the fabric: %w; do RDMA packets (RoCE v2: UDP port 4791) get through between the RDMA devices of both sides?", err)
}

// binding returns the binding of the channels to the bootstrap connection, or nil if the I/O
// unit does not support it.
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

// keys returns the keys of frames and messages, or nil if the I/O unit does not encrypt.
func (a *attachment) keys() (*seal.Keys, error) {
	if a.welcome.Cipher == "" {
		return nil, nil
	}
	secret, err := a.client.Frames()
	if err != nil {
		return nil, fmt.Errorf("encrypt the session: %w", err)
	}
	return seal.NewKeys(a.welcome.Cipher, secret, true)
}

// drain is the I/O unit's request to move to another I/O unit. Any goroutine may use it.
type drain struct {
	on      atomic.Bool
	stays   atomic.Pointer[string] // why the host does not move, for the status; nil: not tried yet
	changed chan struct{}          // capacity one
}

// ask records that the I/O unit is being drained, or that it no longer is.
func (d *drain) ask(on bool) {
	d.on.Store(on)
	d.stays.Store(nil)
	wake.Up(d.changed)
}

// stopwatch measures consecutive stages.
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

// retired ends sessions in the background, so that neither a dead I/O unit nor the
// deregistration of memory delays the next session.
type retired struct {
	log     *slog.Logger
	mu      sync.Mutex
	pending int
	fewer   sync.Cond // pending has decreased; uses mu
}

// end ends a session that is no longer in use.
func (r *retired) end(a *attachment, code session.Code, reason string) {
	r.add(func() {
		if err := errors.Join(a.client.Bye(code, reason), a.conn.Close()); err != nil {
			r.log.Debug("end of a session", "iounit", a.addr, "error", err)
		}
	})
}

// endUnused ends a session that was never in use. b may be nil.
func (r *retired) endUnused(b *attachment) {
	if b != nil {
		r.end(b, session.CodeShuttingDown, "it is not needed")
	}
}

// add runs do in the background.
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

// wait waits until everything in the background is done, and reports whether it had to wait.
func (r *retired) wait() (waited bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.pending > 0; waited = true {
		r.fewer.Wait()
	}
	return waited
}
