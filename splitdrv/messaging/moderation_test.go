package messaging_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// askedDevice records calls of Moderate and the configurations of queue pairs.
type askedDevice struct {
	fabric.Device
	moderated []messaging.Moderation // one for each call of Moderate
	refuse    error                  // result of all these calls
	qps       []fabric.QPConfig
}

func (d *askedDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return &askedDomain{dom, d}, err
}

type askedDomain struct {
	fabric.Domain
	d *askedDevice
}

func (d *askedDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	cq, err := d.Domain.NewCQ(depth, vector)
	return &askedCQ{cq, d.d}, err
}

func (d *askedDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	d.d.qps = append(d.d.qps, c)
	c.SendCQ, c.RecvCQ = c.SendCQ.(*askedCQ).CQ, c.RecvCQ.(*askedCQ).CQ
	return d.Domain.NewQP(c)
}

type askedCQ struct {
	fabric.CQ
	d *askedDevice
}

func (c *askedCQ) Moderate(count int, period time.Duration) error {
	c.d.moderated = append(c.d.moderated, messaging.Moderation{Count: count, Period: period})
	return c.d.refuse
}

// newOn makes a Conn with two data channels on an askedDevice, and returns the channels'
// statistics.
func newOn(t *testing.T, refuse error, cfg messaging.Config) (*askedDevice, []messaging.ChannelStats, error) {
	t.Helper()
	d := &askedDevice{Device: fabrictest.New().Device("a"), refuse: refuse}
	t.Cleanup(func() { d.Close() })
	cfg.Device, cfg.Queues = d, 2
	conn, err := messaging.New(cfg)
	if err != nil {
		return d, nil, err
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, conn.Stats().Channels, nil
}

// TestModeration checks that the completion queues of the data channels are moderated as
// configured, and that of the control channel is not.
func TestModeration(t *testing.T) {
	m := messaging.Moderation{Count: 16, Period: 50 * time.Microsecond}
	for _, c := range []struct {
		name   string
		refuse error
		ask    messaging.Moderation
		calls  int
		works  bool
		fails  bool
	}{
		{"taken", nil, m, 4, true, false},
		{"not asked for", nil, messaging.Moderation{}, 0, false, false},
		{"unsupported", fmt.Errorf("no: %w", fabric.ErrUnsupported), m, 2, false, false},
		{"refused", errBroken, m, 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, channels, err := newOn(t, c.refuse, messaging.Config{Moderation: c.ask})
			if c.fails != errors.Is(err, errBroken) || !c.fails && err != nil {
				t.Fatal(err)
			}
			if want := slices.Repeat([]messaging.Moderation{c.ask}, c.calls); !slices.Equal(d.moderated, want) {
				t.Errorf("asked for %v, want %v", d.moderated, want)
			}
			for i, ch := range channels {
				if ch.Moderated != c.works {
					t.Errorf("channel %d: moderated %t", i, ch.Moderated)
				}
			}
		})
	}
}

// TestModerationUnknown configures moderation on a fabric whose completion queues have no
// Moderate. New must succeed.
func TestModerationUnknown(t *testing.T) {
	dev := fabrictest.New().Device("a")
	t.Cleanup(func() { dev.Close() })
	conn, err := messaging.New(messaging.Config{Device: dev, Moderation: messaging.Moderation{Count: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if conn.Stats().Channels[0].Moderated {
		t.Error("a queue that cannot be moderated is")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestModerationCheck(t *testing.T) {
	for _, c := range []struct {
		m  messaging.Moderation
		ok bool
	}{
		{messaging.Moderation{}, true},
		{messaging.Moderation{Count: 1}, true},
		{messaging.Moderation{Count: 16, Period: time.Microsecond}, true},
		{messaging.Moderation{Count: 65535, Period: 65535 * time.Microsecond}, true},
		{messaging.Moderation{Count: 2}, false},
		{messaging.Moderation{Period: time.Microsecond}, false},
		{messaging.Moderation{Count: -1, Period: time.Microsecond}, false},
		{messaging.Moderation{Count: 65536, Period: time.Microsecond}, false},
		{messaging.Moderation{Count: 16, Period: 65536 * time.Microsecond}, false},
		{messaging.Moderation{Count: 16, Period: -time.Microsecond}, false},
		{messaging.Moderation{Count: 16, Period: 1500}, false},
	} {
		if err := (messaging.Config{Moderation: c.m}).Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.m, err)
		}
	}
}

// TestMarks checks that the queue pairs of all channels have the configured traffic class and
// service level.
func TestMarks(t *testing.T) {
	d, _, err := newOn(t, nil, messaging.Config{TrafficClass: 0xb8, ServiceLevel: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.qps) != 3 {
		t.Fatalf("%d queue pairs for control and two data channels", len(d.qps))
	}
	for i, c := range d.qps {
		if c.TrafficClass != 0xb8 || c.ServiceLevel != 5 || c.HopLimit != 0 {
			t.Errorf("queue pair %d: traffic class %#x, service level %d, hop limit %d", i, c.TrafficClass, c.ServiceLevel,
				c.HopLimit)
		}
	}
	if err := (messaging.Config{ServiceLevel: 16}).Check(); err == nil {
		t.Error("service level 16 is taken")
	}
}
