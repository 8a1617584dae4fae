package messaging_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// failing is a device whose queue pairs the test can move to the error state, as if by an error
// that only the device knows.
type failing struct {
	fabric.Device
	qps []fabric.QP
}

func (d *failing) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return &failingDomain{dom, d}, err
}

type failingDomain struct {
	fabric.Domain
	d *failing
}

func (d *failingDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	qp, err := d.Domain.NewQP(c)
	d.d.qps = append(d.d.qps, qp)
	return qp, err
}

// talkative is such a device that is said to raise events for queue pairs.
type talkative struct{ *failing }

func (talkative) Silent() bool { return false }

// TestChannelFailsUnheard fails the queue pair of an idle data channel on a device that raises
// no event for flushed receives. The session must still end. The peer does not send on the
// channel and is not told, so its session must go on.
func TestChannelFailsUnheard(t *testing.T) {
	for i, mode := range append(protocol.Modes(), protocol.ModeImm) {
		inRounds := i == len(protocol.Modes())
		t.Run(fmt.Sprintf("%v, in rounds %v", mode, inRounds), func(t *testing.T) {
			n := fabrictest.New(fabrictest.WithQuietFlushes())
			fabrictest.NoLeaks(t, n)
			quick := patient(messaging.Config{Mode: mode, KeepAlive: 5 * time.Millisecond})
			a := newEndpoint(t, n, "a", quick)
			cfg, dev := quick, &failing{Device: n.Device("b")}
			t.Cleanup(func() { dev.Close() })
			cfg.Device = dev
			if inRounds {
				cfg.Device = talkative{dev}
			}
			conn, err := messaging.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			spare := newEndpoint(t, n, "c", quick) // for its port
			b := &endpoint{name: "b", conn: conn, ports: spare.ports}
			connect(t, a, b)
			for _, h := range []*endpoint{a, b} {
				if err := h.conn.Start(h.ports); err != nil {
					t.Fatal(err)
				}
			}
			until(t, func() error {
				if a.conn.Stats().Channels[0].Remote.Elements == 0 && !mode.Sends() {
					return errors.New("nothing is lent")
				}
				return nil
			})
			if err := dev.qps[len(dev.qps)-1].Fail(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-conn.Done():
			case <-deadline(t).Done():
				t.Fatal("the session goes on with a queue pair that has failed")
			}
			if err := conn.Err(); !errors.Is(err, &fabric.WCError{Status: fabric.StatusWRFlushErr}) {
				t.Errorf("the session ended with %v", err)
			}
			if err := a.conn.Err(); err != nil {
				t.Errorf("the peer, which did not send, ended with %v", err)
			}
		})
	}
}
