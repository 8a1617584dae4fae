package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/verbs"
)

// TestDoctorPort expects the advice that fits a port's link: nothing about netdevices, which are no
// part of an InfiniBand fabric.
func TestDoctorPort(t *testing.T) {
	infiniband := verbs.PortAttr{
		Port: 1, State: verbs.PortActive, LinkLayer: verbs.LinkInfiniBand, ActiveMTU: 2048, MaxMTU: 4096,
	}
	roce := infiniband
	roce.LinkLayer = verbs.LinkEthernet
	noManager, noGID, down := infiniband, infiniband, roce
	noManager.State, noGID.NeedsGRH, down.State = verbs.PortInit, true, verbs.PortDown
	for _, tc := range []struct {
		name, driver, status string
		port                 verbs.PortAttr
		fix                  string
	}{
		{"InfiniBand, no subnet manager", "mlx5_core", "error", noManager, "subnet manager"},
		{"InfiniBand, smaller MTU", "mlx5_core", "ok", infiniband, ""},
		{"InfiniBand, function without GID", "mlx5_core", "error", noGID, "GUID"},
		{"RoCE, down", "mlx5_core", "error", down, "netdevice or the cable"},
		{"RoCE, smaller MTU", "mlx5_core", "warning", roce, "the full 4096 bytes"},
		{"Soft-RoCE, smaller MTU", "rdma_rxe", "warning", roce, "4200"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r report
			checkPort(&r, "dev0", tc.driver, tc.port)
			if len(r) != 1 || r[0].Status != tc.status || !strings.Contains(r[0].Fix, tc.fix) ||
				(tc.fix == "") != (r[0].Fix == "") {
				t.Errorf("%+v, want %s, %q", r, tc.status, tc.fix)
			}
		})
	}
}

// TestDoctorRoom has packets of the path MTU that just fit a netdevice, and that just do not.
func TestDoctorRoom(t *testing.T) {
	for _, tc := range []struct {
		gid  string
		mtu  int
		fits bool
	}{
		{"10.0.0.1", 4096 + 64, true},
		{"10.0.0.1", 4096 + 63, false},
		{"fd00::1", 4096 + 84, true},
		{"fd00::1", 4096 + 83, false},
		{"10.0.0.1", 4096, false},
	} {
		var r report
		gid := verbs.GIDEntry{GID: verbs.GID(netip.MustParseAddr(tc.gid).As16()), Netdev: "eth0"}
		checkRoom(&r, "dev0", gid, verbs.PortAttr{ActiveMTU: 4096}, tc.mtu)
		if (len(r) == 0) != tc.fits {
			t.Errorf("%s, MTU %d: %+v", tc.gid, tc.mtu, r)
		}
	}
}
