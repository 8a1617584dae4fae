package messaging

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// driven is a device of a kernel driver.
type driven struct {
	fabric.Device
	fabric.EventSource
	driver string
}

func (d driven) Driver() string { return d.driver }

func (d driven) PortMTU() (int, error) {
	return d.Device.(interface{ PortMTU() (int, error) }).PortMTU()
}

// idleSessions has the queue pairs of many sessions on one device, which are watched.
type idleSessions struct {
	*testing.T
	net    *fabrictest.Network
	qps    []fabric.QP
	shared []*core.Session
}

func newIdleSessions(t *testing.T, driver string, sessions, pairs int) *idleSessions {
	t.Helper()
	s := &idleSessions{T: t, net: fabrictest.New()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, err := device.Open(device.Config{
		Open: func() (fabric.Device, error) {
			d, err := s.net.Open("a")
			if err != nil {
				return nil, err
			}
			return driven{d, d.(fabric.EventSource), driver}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	must(err)
	t.Cleanup(func() { must(dev.Close()) })
	dom, err := dev.NewDomain()
	must(err)
	queue, err := dom.NewCQ(8, 0)
	must(err)
	q := newQueries()
	for range sessions {
		c := &core.Session{Device: dev, Done: make(chan struct{}), Handlers: &cq.Handlers{}}
		c.Reason = func(err error, _ func() error) error { return err }
		k := &control.Channel{}
		var channels []*channel
		for i := range pairs {
			qp, err := dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: queue, RecvCQ: queue, MaxSend: 1, MaxRecv: 1})
			must(err)
			s.qps = append(s.qps, qp)
			if i == 0 {
				k.QP = qp
			} else {
				channels = append(channels, &channel{DataQP: core.DataQP{Number: i, QP: qp}})
			}
		}
		task, queried := q.watch(c, 500*time.Millisecond, k, channels)
		t.Cleanup(func() {
			task.Stop()
			queried.leave()
			c.Background.Wait()
		})
		s.shared = append(s.shared, c)
	}
	return s
}

// TestIdleSessions counts the commands that a device gets each second from many idle sessions of a
// process. Each can be one to its firmware.
func TestIdleSessions(t *testing.T) {
	for _, c := range []struct {
		driver          string
		sessions, pairs int
		most            uint64
	}{
		{"mlx5_core", 400, 5, 10},
		{"mlx5_core", 2, 5, 3},
		{"rdma_rxe", 400, 5, 1001},
		{"rdma_rxe", 20, 2, 41},
	} {
		t.Run(fmt.Sprintf("%d sessions of %s", c.sessions, c.driver), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newIdleSessions(t, c.driver, c.sessions, c.pairs)
				time.Sleep(10*time.Second + time.Millisecond)
				synctest.Wait()
				before := s.net.Commands("a")
				first, least, most := before, ^uint64(0), uint64(0)
				for range 20 {
					time.Sleep(time.Second)
					synctest.Wait()
					now := s.net.Commands("a")
					n := now.All() - before.All()
					least, most, before = min(least, n), max(most, n), now
				}
				if most > c.most || least == 0 || before.QueryPort == first.QueryPort {
					t.Errorf("%d to %d commands in a second; in all %+v, before that %+v", least, most, before, first)
				}
				t.Logf("%d to %d commands in a second", least, most)
			})
		})
	}
}

// TestIdleSessionFails expects that of many idle sessions the one whose queue pair fails without an
// event ends, and that it ends within the time that docs/datapath.md says.
func TestIdleSessionFails(t *testing.T) {
	for driver, within := range map[string]time.Duration{
		"mlx5_core": 400 * 5 * time.Second / 8, "rdma_rxe": 3 * time.Second,
	} {
		t.Run(driver, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const sessions, pairs = 400, 5
				s := newIdleSessions(t, driver, sessions, pairs)
				time.Sleep(time.Minute)
				failed := sessions/2 + 1
				if err := s.qps[failed*pairs+pairs-1].Fail(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(within + time.Millisecond)
				synctest.Wait()
				for i, c := range s.shared {
					select {
					case <-c.Done:
						if !errors.Is(c.Failure, &fabric.WCError{Status: fabric.StatusWRFlushErr}) || i != failed {
							t.Errorf("session %d ended with %v", i, c.Failure)
						}
					default:
						if i == failed {
							t.Errorf("session %d goes on", i)
						}
					}
				}
			})
		})
	}
}
