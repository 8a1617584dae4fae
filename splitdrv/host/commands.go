package host

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

var errBusy = errors.New("another switch-over is under way")

// Failover switches from the I/O unit in use to the one at addr, which must be configured,
// or to the next one if addr is empty, and returns the result. The second session is opened
// before the first one ends if the I/O unit supports standby sessions, and otherwise
// afterwards. If it returns an error, the first session is still in use, or has ended for
// another reason. Without a session the error wraps ErrNoSession, and the I/O units are tried
// at once, beginning with the one at addr. Any goroutine may call it.
func (h *Host) Failover(ctx context.Context, addr string) (uplink.Failover, error) {
	if err := h.failover(ctx, addr); err != nil {
		return uplink.Failover{}, fmt.Errorf("fail over: %w", err)
	}
	h.sessions.mu.Lock()
	defer h.sessions.mu.Unlock()
	return *h.sessions.failovers.Status().Last, nil
}

func (h *Host) failover(ctx context.Context, addr string) error {
	if !h.commanded.TryLock() {
		return errBusy
	}
	defer h.commanded.Unlock()
	h.sessions.mu.Lock()
	connected, inUse := h.sessions.current.conn != nil, h.sessions.current.addr
	h.sessions.mu.Unlock()
	if !connected {
		return h.tryNow(addr)
	}
	units, _, _ := h.units.Units()
	addr, err := units.Choose(addr, inUse)
	if err != nil {
		return err
	}
	o := newSwitchRequest(addr, nil, uplink.ReasonCommand)
	// Held until the switch is done: a session on standby with the same I/O unit, opened in
	// the meantime, would replace the session that is switched to.
	release, err := h.opener.reserve(ctx, addr)
	if err != nil {
		return err
	}
	defer release()
	if o.to = h.standby.Load().take(addr); o.to == nil {
		o.to, err = h.opener.openStandby(ctx, addr)
	}
	if err != nil && !errors.Is(err, uplink.ErrNoStandby) {
		return fmt.Errorf("the I/O unit at %s: %w", addr, err)
	}
	return h.switching.submit(ctx, o)
}

// ask sends a request to the I/O unit in use and waits for the reply.
func (h *Host) ask(ctx context.Context, t protocol.CfgType) (*messaging.Conn, []byte, error) {
	conn := h.sessions.inUse()
	if conn == nil {
		return nil, nil, ErrNoSession
	}
	data, err := conn.Request(ctx, t, nil)
	if errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w any more: %w", ErrNoSession, err)
	}
	return conn, data, err
}

// Statistics reads the I/O unit's counters of this host. With clear it also sets them to
// zero, atomically. Without a session the error wraps ErrNoSession. Any goroutine may call
// it.
func (h *Host) Statistics(ctx context.Context, clear bool) (protocol.Statistics, error) {
	t := protocol.CfgStatsRead
	if clear {
		t = protocol.CfgStatsClear
	}
	_, data, err := h.ask(ctx, t)
	if err != nil {
		return protocol.Statistics{}, fmt.Errorf("the I/O unit's counters: %w", err)
	}
	return protocol.DecodeStatistics(data)
}

// Reset resets what the administrator has set since the session began: the MAC address, the
// MTU, and the netdevice's own promiscuous and all-multicast settings. Settings that
// programs and stacked devices need stay. Without a session the error wraps ErrNoSession.
// Any goroutine may call it.
func (h *Host) Reset(ctx context.Context) error {
	conn, _, err := h.ask(ctx, protocol.CfgReset)
	if err == nil {
		err = h.dev.reset(conn)
	}
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// ChangeHandlers changes the completion-queue handlers of the session in use, if there is
// one, and of all later sessions. If it returns an error, nothing has changed. Any goroutine
// may call it.
func (h *Host) ChangeHandlers(ch cq.HandlerChange) error { return h.sessions.changeHandlers(ch) }
