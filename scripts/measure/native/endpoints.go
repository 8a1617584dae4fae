package native

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// endpoints has a host and an I/O unit as users run them, except that both are in one process
// with a fabric in memory between them. The fabric costs one copy, which an adapter would make.
type endpoints struct {
	dev    *tap.Device
	host   *host.Host
	cancel context.CancelFunc
	tasks  testbed.Tasks
}

func newEndpoints(s subject, st *topology) (mover, error) {
	h := &endpoints{}
	err := h.open(s, st)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *endpoints) open(s subject, st *topology) error {
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	offloads := vnet.AllOffloads
	if s.plain {
		offloads = 0
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	security, err := session.Insecure() // for the bootstrap connection, which carries no frames
	if err != nil {
		return err
	}
	network := fabrictest.New()
	card, adapter := network.Device("unit"), network.Device("host")

	_, address, err := testbed.Serve(ctx, &h.tasks, iounit.Config{
		Name: "unit", Software: "measure", Device: card, Log: log,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return lan.Open(s.port+":"+st.nic, lan.Config{NetNS: st.middle, MAC: mac, Queues: queues,
				Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := lan.LinkInfo(st.nic, st.middle)
			return info.LinkState, err
		},
	}, security, testbed.Loopback)
	if err != nil {
		return err
	}

	if h.dev, err = tap.Open(tap.Config{Name: st.hostDev, NetNS: st.host, Offloads: offloads}); err != nil {
		return err
	}
	h.host, err = host.New(host.Config{
		Name: "host", Software: "measure", IOUnits: []string{address}, Security: security,
		Device: adapter, Netdev: host.TAP(h.dev), Offloads: offloads, Log: log,
	})
	if err != nil {
		return err
	}
	if err := h.dev.Up(); err != nil {
		return err
	}
	// As many Ps as both commands have, with one queue each.
	runtime.GOMAXPROCS(runtime.NumCPU() + 3 + 4)
	h.tasks.Go(func() error { return errors.Join(h.host.Run(ctx), adapter.Close()) })
	return nil
}

// counters returns the counters of the host. What the host sends goes to the LAN.
func (h *endpoints) counters() (counters, error) {
	s := h.host.Status()
	if s.Sessions != 1 || s.Traffic == nil {
		return counters{}, errors.New("the session between the endpoints has ended: " + s.LastError)
	}
	var c counters
	for _, ch := range s.Traffic.Channels {
		c.Frames[0] += ch.TxFrames
		c.Bytes[0] += ch.TxBytes
		c.Frames[1] += ch.RxFrames
		c.Bytes[1] += ch.RxBytes
		c.Refused += ch.RxDropped
	}
	return c, nil
}

func (h *endpoints) close() error {
	h.cancel()
	err := h.tasks.Wait()
	if h.dev != nil {
		err = errors.Join(err, h.dev.Close())
	}
	return err
}
