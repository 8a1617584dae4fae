package lan_test

import (
	"net"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsErrdocLAN opens LAN interfaces that cannot exist, and expects documented errors.
func TestNetnsErrdocLAN(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip")
	s := newTestbed(t)
	testenv.Bridge(t, s.unit, "br1")
	testenv.Veth(t, s.unit, "slave0", testenv.NetNS(t), "end0")
	testenv.Run(t, s.unit, "ip", "link", "set", "slave0", "master", "br1")
	own := testenv.Link(t, s.unit, nic).Attrs().HardwareAddr
	s.open(t, nic, lan.Config{MAC: macA})
	for _, spec := range []string{"tap:" + nic, "slave0", "lo", "packet:lo"} {
		kind, card, err := lan.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		info, err := lan.LinkInfo(card, s.unit)
		if err != nil {
			t.Fatal(err)
		}
		if err := info.Suits(kind); err == nil {
			t.Errorf("%s is taken", spec)
		} else {
			testenv.Explained(t, "--lan "+spec+": "+err.Error())
		}
	}
	for _, tc := range []struct {
		name, spec string
		cfg        lan.Config
	}{
		{"missing card", "eth7", lan.Config{}},
		{"missing bridge", "tap:br7", lan.Config{}},
		{"no bridge", "tap:" + nic, lan.Config{}},
		{"card in a bridge", "slave0", lan.Config{}},
		{"address of the card", nic, lan.Config{MAC: own, Offloads: vnet.AllOffloads}},
		{"address of the card, by packets", "packet:" + nic, lan.Config{MAC: own, Offloads: vnet.AllOffloads}},
		{"address of another", nic, lan.Config{MAC: macA}},
		{"address of another, other name", nic, lan.Config{MAC: macA, Name: "other"}},
		{"group address", nic, lan.Config{MAC: net.HardwareAddr{1, 0, 0, 0, 0, 1}}},
		{"packets without offloads", "packet:" + nic, lan.Config{Offloads: vnet.CSUM}},
		{"no such namespace", nic, lan.Config{NetNS: "sntest-none"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.cfg.NetNS == "" {
				tc.cfg.NetNS = s.unit
			}
			p, err := lan.Open(tc.spec, tc.cfg)
			if err == nil {
				p.Close()
				t.Fatal("no error")
			}
			testenv.Explained(t, err.Error())
		})
	}
}
