package host

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

var errBusy = errors.New("another switch-over is under way")

// Failover goes over from the I/O unit in use to the one at addr, one of those
// configured, or to the next one if addr is empty, and says how that went. The
// second session is made before the first one ends, if the I/O unit has standby
// sessions; otherwise afterwards. With an error the first one stays in use, or
// has been lost meanwhile. It may be called from any goroutine.
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
		return ErrNoSession
	}
	units, _, _ := h.units.Units()
	addr, err := units.Choose(addr, inUse)
	if err != nil {
		return err
	}
	o := newSwitchRequest(addr, nil, uplink.ReasonCommand)
	// Held until the session has been gone over to: one on standby with the same I/O
	// unit, made meanwhile, would take its place there.
	release, err := h.standby.acquire(ctx, addr)
	if err != nil {
		return err
	}
	defer release()
	o.to, err = h.standby.prepare(ctx, addr)
	if err != nil && !errors.Is(err, uplink.ErrNoStandby) {
		return fmt.Errorf("the I/O unit at %s: %w", addr, err)
	}
	return h.switching.submit(ctx, o)
}

// ask sends a request to the I/O unit.
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

// Statistics reads the I/O unit's counters of this host, and with clear sets
// them to zero in the same moment. Without a session the error wraps
// ErrNoSession. It may be called from any goroutine.
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

// Reset takes back what the administrator has set since the session began: the
// MAC address, the MTU, and the netdevice's own promiscuous and all-multicast
// settings. What programs and stacked devices need stays. Without a session the
// error wraps ErrNoSession. It may be called from any goroutine.
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

// ChangeHandlers changes the completion-queue handlers of the present session,
// if there is one, and of all further ones. With an error nothing has changed.
// It may be called from any goroutine.
func (h *Host) ChangeHandlers(ch messaging.HandlerChange) error { return h.sessions.changeHandlers(ch) }
