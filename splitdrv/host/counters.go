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
	conn := h.conn()
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
