package host

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// errDrains is why a session on standby is given up that is with an I/O unit that drains.
var errDrains = errors.New("it takes no hosts, so that it can be maintained")

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

// drains has the manager follow what the I/O unit in use asks for.
func (m *standbyManager) drains() []uplink.Action {
	on := m.inUse.drain.on.Load()
	switch {
	case on == m.Leaving():
		return nil
	case on:
		m.standby.cfg.Log.Info("the I/O unit drains", "iounit", m.inUse.addr)
	default:
		m.standby.cfg.Log.Info("the I/O unit drains no longer", "iounit", m.inUse.addr)
	}
	return m.follow(on)
}

// stays tells the I/O unit in use, which drains, why the host does not go.
func (m *standbyManager) stays(why error) {
	cfg, drain, reason := m.standby.cfg, &m.inUse.drain, why.Error()
	level := slog.LevelWarn
	if last := drain.stays.Swap(&reason); last != nil {
		level = slog.LevelDebug
	}
	cfg.Log.Log(m.ctx, level, "the host stays with an I/O unit that drains", "iounit", m.inUse.addr, "error", why)
	if err := m.inUse.client.Stays(reason, cfg.handover()); err != nil {
		cfg.Log.Debug("the I/O unit is not told", "iounit", m.inUse.addr, "error", err) // its session ends
	}
}
