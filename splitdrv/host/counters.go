package host

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// ErrNoSession is wrapped by errors about what only an I/O unit can do, while
// there is none.
var ErrNoSession = errors.New("there is no session with an I/O unit")

// ask sends a request to the I/O unit.
func (h *Host) ask(ctx context.Context, t protocol.CfgType) (*messaging.Conn, []byte, error) {
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
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
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if err := h.reset(conn); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	h.changed()
	return nil
}

func (h *Host) reset(conn *messaging.Conn) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != conn {
		return ErrNoSession
	}
	d := h.cfg.Netdev
	state, err := d.State()
	if err != nil {
		return err
	}
	h.set.wantMAC, h.set.wantMTU = protocol.MAC{}, 0
	h.set.mac, h.set.mtu = h.set.granted, h.set.limit
	h.set.session() // all is told anew
	errs := []error{d.SetMAC(net.HardwareAddr(h.set.mac[:])), d.SetMTU(h.set.mtu)}
	if state.PromiscSet {
		errs = append(errs, d.SetPromisc(false))
	}
	if state.AllMultiSet {
		errs = append(errs, d.SetAllMulti(false))
	}
	return errors.Join(errs...)
}
