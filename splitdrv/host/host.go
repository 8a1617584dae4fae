package host

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Host is a host. The goroutine of Run goes from one session to the next (connect.go,
// serve.go). Its parts own their state, each with a lock.
type Host struct {
	cfg        Config
	protection messaging.ProtectionInForce // protection of lent memory
	sessions   sessions
	dev        *netdev
	units      *discovery.Directory
	opener     opener
	standby    atomic.Pointer[standby] // of the session in use, or the last one; nil: there was none
	retired    retired
	switching  switching
	direct     *direct.Connections
	commanded  sync.Mutex     // held while a command to fail over is carried out
	commands   chan string    // the I/O unit of a command without a session; capacity one
	background sync.WaitGroup // goroutines beside a session in use
}

// Captures returns the point where the netdevice's frames on the fabric can be captured.
func (h *Host) Captures() *capture.Point { return h.cfg.captures }

// New returns a host, which does nothing before Run.
func New(cfg Config) (*Host, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if err := cfg.carried(); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	protection, err := messaging.ChooseProtection(cfg.Messaging.Protection, device.WindowsOf(cfg.Device))
	if err != nil {
		return nil, fmt.Errorf("host: device %s: %w", cfg.Device.Name(), err)
	}
	for _, m := range cfg.Modes {
		if err := cfg.messaging(m).Check(); err != nil {
			return nil, fmt.Errorf("host: %w", err)
		}
	}
	h := &Host{cfg: cfg, protection: protection, commands: make(chan string, 1)}
	if h.units, err = discovery.New(cfg.IOUnits, cfg.Name, cfg.Discovery, cfg.Log); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h.retired.log, h.retired.fewer.L = cfg.Log, &h.retired.mu
	h.sessions.cfg, h.sessions.current = &h.cfg, current{state: Connecting, since: time.Now()}
	h.sessions.handling.Handling = cfg.handling()
	h.dev = newNetdev(&h.cfg, &h.sessions)
	h.direct, err = direct.New(direct.Config{
		Settings: cfg.Direct, Ports: cfg.Netdev.Ports(), Messaging: h.cfg.messaging,
		Encrypt: cfg.Encrypt == seal.Required, Ciphers: h.cfg.ciphers(), PeerTimeout: cfg.Messaging.PeerTimeout,
		Security: cfg.Security, Captures: cfg.captures,
		Background: h.retired.add, KeyLog: cfg.KeyLog, Log: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h.dev.settled = h.direct.Settle
	h.opener = opener{
		cfg: &h.cfg, units: h.units, dev: h.dev, sessions: &h.sessions, retired: &h.retired, direct: h.direct,
		reservations: reservations{units: make(map[string]chan struct{})},
	}
	h.switching = switching{requests: make(chan *switchRequest), over: make(chan struct{}), retired: &h.retired}
	return h, nil
}
