package messaging_test

import (
	"errors"
	"os"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

var errBroken = errors.New("broken on purpose")

// brokenDevice is a device on which one call fails: the one after good successful calls.
type brokenDevice struct {
	fabric.Device
	good int
}

func (d *brokenDevice) fails() bool {
	d.good--
	return d.good == -1
}

func (d *brokenDevice) NewDomain() (fabric.Domain, error) {
	if d.fails() {
		return nil, errBroken
	}
	dom, err := d.Device.NewDomain()
	return &brokenDomain{dom, d}, err
}

type brokenDomain struct {
	fabric.Domain
	d *brokenDevice
}

func (d *brokenDomain) Register(mem []byte, a fabric.Access) (fabric.Region, error) {
	if d.d.fails() {
		return nil, errBroken
	}
	return d.Domain.Register(mem, a)
}

func (d *brokenDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	if d.d.fails() {
		return nil, errBroken
	}
	return d.Domain.NewCQ(depth, vector)
}

func (d *brokenDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	if d.d.fails() {
		return nil, errBroken
	}
	qp, err := d.Domain.NewQP(c)
	return &brokenQP{qp, d.d}, err
}

type brokenQP struct {
	fabric.QP
	d *brokenDevice
}

func (q *brokenQP) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if q.d.fails() {
		return 0, errBroken
	}
	return q.QP.PostRecv(wrs)
}

// descriptors returns the number of open file descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestNewReleases makes every step of New fail once, and expects that everything is released
// afterwards.
func TestNewReleases(t *testing.T) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	dev := n.Device("a")
	t.Cleanup(func() { dev.Close() })
	before := descriptors(t)
	for good := 0; ; good++ {
		conn, err := messaging.New(messaging.Config{Device: &brokenDevice{dev, good}, Queues: 2})
		if err == nil {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if good < 10 {
				t.Errorf("New has %d steps", good)
			}
			break
		}
		if !errors.Is(err, errBroken) {
			t.Fatalf("step %d: %v", good, err)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// badPort is a port with an invalid descriptor.
type badPort struct{ messaging.Port }

func (badPort) FD() int { return -1 }

// TestStartReleases starts a session with an invalid port. Start must fail, and Close must
// release everything.
func TestStartReleases(t *testing.T) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	dev, b := n.Device("a"), newEndpoint(t, n, "b", patient(messaging.Config{}))
	t.Cleanup(func() { dev.Close() })
	before := descriptors(t)
	conn, err := messaging.New(patient(messaging.Config{Device: dev}))
	if err != nil {
		t.Fatal(err)
	}
	connect(t, &endpoint{conn: conn}, b)
	if err := conn.Start([]messaging.Port{badPort{b.ports[0]}}); err == nil {
		t.Error("started over a port without descriptor")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
