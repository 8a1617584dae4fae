package verbs

import (
	"math"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

func TestMTU(t *testing.T) {
	for enum, bytes := range []int{0, 256, 512, 1024, 2048, 4096, 0} {
		if got := mtuBytes(uint32(enum)); got != bytes {
			t.Errorf("MTU %d is %d bytes, want %d", enum, got, bytes)
		}
	}
	for bytes, enum := range map[int]uint32{
		math.MinInt: 0, -1: 0, 0: 0, 255: 0, 256: 1, 1023: 2, 1024: 3, 1500: 3, 4096: 5, 9000: 5, math.MaxInt: 5,
	} {
		if got := mtuEnum(bytes); got != enum {
			t.Errorf("%d bytes are MTU %d, want %d", bytes, got, enum)
		}
	}
}

func TestLinkSpeed(t *testing.T) {
	for _, c := range []struct {
		width, speed uint32
		lanes        int
		gbps         float64
	}{{1, 1, 1, 2.5}, {2, 32, 4, 100}, {2, 128, 4, 400}, {16, 64, 2, 100}, {8, 16, 12, 168}, {0, 0, 0, 0}, {2, 3, 4, 0}} {
		if lanes, gbps := linkSpeed(c.width, c.speed); lanes != c.lanes || gbps != c.gbps {
			t.Errorf("width %d speed %d: %dX %g, want %dX %g", c.width, c.speed, lanes, gbps, c.lanes, c.gbps)
		}
	}
}

func TestStrings(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{LinkEthernet.String(), "Ethernet"},
		{LinkLayer(9).String(), "link layer 9"},
		{PortActive.String(), "ACTIVE"},
		{PortState(77).String(), "state 77"},
		{GIDTypeRoCEv2.String(), "RoCE v2"},
		{GIDType(5).String(), "GID type 5"},
		{GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}.String(), "::ffff:10.0.0.1"},
		{PortAttr{Port: 2, State: PortActive, LinkLayer: LinkInfiniBand, ActiveMTU: 2048, MaxMTU: 4096, LID: 3, Lanes: 4,
			Speed: 100}.String(),
			"port 2: ACTIVE, InfiniBand, MTU 2048 of 4096, LID 0x3, 100 Gb/s (4X)"},
		{fabric.EventGIDChange.String(), "GID table changed"},
		{fabric.EventType(99).String(), "event 99"},
		{makeEvent(fabric.EventPortErr, 2).String(), "port down (port 2)"},
		{makeEvent(fabric.EventQPFatal, 0x12).String(), "queue pair failed (queue pair 0x12)"},
		{makeEvent(fabric.EventCQErr, 0).String(), "completion queue overflowed (completion queue 0)"},
		{makeEvent(fabric.EventDeviceFatal, 0).String(), "device failed"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	good := fabric.Address{GID: [16]byte{15: 1}, LID: 1, QPN: 0x11, PSN: max24, MTU: 1024}
	for _, c := range []struct {
		name   string
		link   LinkLayer
		change func(*fabric.Address)
		ok     bool
	}{
		{"RoCE", LinkEthernet, func(*fabric.Address) {}, true},
		{"InfiniBand by LID", LinkInfiniBand, func(a *fabric.Address) { a.GID = [16]byte{} }, true},
		{"InfiniBand by GID", LinkInfiniBand, func(a *fabric.Address) { a.LID = 0 }, true},
		{"no QPN", LinkEthernet, func(a *fabric.Address) { a.QPN = 0 }, false},
		{"QPN of the management", LinkEthernet, func(a *fabric.Address) { a.QPN = 1 }, false},
		{"long QPN", LinkEthernet, func(a *fabric.Address) { a.QPN = max24 + 1 }, false},
		{"long PSN", LinkEthernet, func(a *fabric.Address) { a.PSN = max24 + 1 }, false},
		{"no MTU", LinkEthernet, func(a *fabric.Address) { a.MTU = 0 }, false},
		{"negative MTU", LinkEthernet, func(a *fabric.Address) { a.MTU = -1 }, false},
		{"RoCE by LID", LinkEthernet, func(a *fabric.Address) { a.GID = [16]byte{} }, false},
		{"neither", LinkInfiniBand, func(a *fabric.Address) { a.GID, a.LID = [16]byte{}, 0 }, false},
	} {
		a := good
		c.change(&a)
		if err := checkAddress(a, PortAttr{LinkLayer: c.link}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	a := good
	needy := PortAttr{LinkLayer: LinkInfiniBand, NeedsGRH: true}
	if err := checkAddress(a, needy); err != nil {
		t.Error(err)
	}
	a.GID = [16]byte{}
	if err := checkAddress(a, needy); err == nil {
		t.Error("a peer without a GID is good enough for a port that needs a global route header")
	}
}

// TestOwnAddress checks the addresses of ports that are addressed by LID, by GID, or by both.
func TestOwnAddress(t *testing.T) {
	entry := GIDEntry{GID: GID{0: 0xfe, 1: 0x80, 15: 1}}
	eth := PortAttr{LinkLayer: LinkEthernet, ActiveMTU: 1024}
	ib := PortAttr{LinkLayer: LinkInfiniBand, ActiveMTU: 4096, LID: 9}
	needy := ib
	needy.NeedsGRH = true
	for _, c := range []struct {
		name  string
		port  PortAttr
		asked bool
		want  fabric.Address
	}{
		{"RoCE", eth, false, fabric.Address{GID: entry.GID, MTU: 1024}},
		{"RoCE, asked for", eth, true, fabric.Address{GID: entry.GID, MTU: 1024}},
		{"InfiniBand", ib, false, fabric.Address{LID: 9, MTU: 4096}},
		{"InfiniBand that needs GIDs", needy, false, fabric.Address{GID: entry.GID, LID: 9, MTU: 4096}},
		{"InfiniBand, asked for", ib, true, fabric.Address{GID: entry.GID, LID: 9, MTU: 4096}},
	} {
		if got := ownAddress(c.port, entry, c.asked); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	byLID, byGID := ownAddress(ib, entry, false), ownAddress(ib, entry, true)
	if !global(byGID, byGID) || global(byGID, byLID) || global(byLID, byGID) || global(byLID, byLID) {
		t.Error("two ends do not decide alike whether packets carry GIDs")
	}
}

func TestCheckTiming(t *testing.T) {
	for _, good := range []fabric.Timing{{}, {Timeout: 31, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 31}} {
		if err := checkTiming(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []fabric.Timing{{Timeout: 32}, {RetryCount: 8}, {RNRRetry: 8}, {MinRNRTimer: 32}} {
		if err := checkTiming(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
