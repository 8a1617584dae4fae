package lan

import (
	"net"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for _, tc := range []struct {
		spec string
		kind Kind
		nic  string
		ok   bool
	}{
		{"eth1", Macvtap, "eth1", true},
		{"macvtap:eth1", Macvtap, "eth1", true},
		{"packet:bond0.7", Packet, "bond0.7", true},
		{"tap:br0", TAP, "br0", true},
		{"", "", "", false},
		{"tap:", "", "", false},
		{"xdp:eth1", "", "", false},
		{":eth1", "", "", false},
	} {
		kind, nic, err := ParseSpec(tc.spec)
		if kind != tc.kind || nic != tc.nic || (err == nil) != tc.ok {
			t.Errorf("%q: %q, %q, %v", tc.spec, kind, nic, err)
		}
	}
}

func TestMACs(t *testing.T) {
	for range 100 {
		if mac := randomMAC(); checkMAC(mac) != nil || mac[0]&2 == 0 {
			t.Errorf("random address %v", mac)
		}
	}
	for _, bad := range []net.HardwareAddr{nil, {2, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 0},
		{2, 0, 0, 0, 0, 1, 2, 3}} {
		if checkMAC(bad) == nil {
			t.Errorf("%v passed", bad)
		}
	}
	if n := len(deriveName(randomMAC())); n > 15 {
		t.Errorf("derived name of %d bytes", n)
	}
}
