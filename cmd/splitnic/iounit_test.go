package main

import (
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap/steer"
)

func TestIOUnitFlags(t *testing.T) {
	of := func(args ...string) (daemon.IOUnit, error) {
		var f iounitFlags
		return parse(f.add, f.config, append([]string{"--lan", "eth1"}, args...)...)
	}
	classes := steer.DefaultClasses()
	base := daemon.IOUnit{
		Common: commonDefaults(), Listen: ":7580", LAN: "eth1", Kind: lan.Macvtap, NIC: "eth1", Modes: protocol.Modes(),
		MaxHosts: 64, Direct: true, DirectAfter: 1000, DirectPeers: 64,
	}
	base.Latency, base.Messaging.Timing.RetryCount = &classes, 6
	checkFlags(t, of, base, append(commonCases(func(u *daemon.IOUnit) *daemon.Common { return &u.Common }),
		[]flagCase[daemon.IOUnit]{
			{"--name gw1 --listen 10.0.0.1 --netns ns1",
				func(u *daemon.IOUnit) { u.Name, u.Listen, u.NetNS = "gw1", "10.0.0.1", "ns1" }, ""},
			{"--name a/b", nil, `--name: "a/b" is not possible`},
			{"--listen [fd00::1]:0", func(u *daemon.IOUnit) { u.Listen = "[fd00::1]:0" }, ""},
			{"--listen fd00::1", func(u *daemon.IOUnit) { u.Listen = "fd00::1" }, ""},
			{"--listen 7580", nil, `--listen "7580": must be ADDRESS, ADDRESS:PORT or :PORT, such as :7580`},
			{"--listen :70000", nil, `--listen ":70000": must be`},
			{"--listen *:7580", nil, `--listen "*:7580": must be ADDRESS, ADDRESS:PORT or :PORT`},
			{"--listen a:b:c", nil, `--listen "a:b:c": must be`},
			{"--lan tap:br0", func(u *daemon.IOUnit) { u.LAN, u.Kind, u.NIC = "tap:br0", lan.TAP, "br0" }, ""},
			{"--lan packet:eth1", func(u *daemon.IOUnit) { u.LAN, u.Kind = "packet:eth1", lan.Packet }, ""},
			{"--lan bridge:eth1", nil, "--lan: "},
			{"--lan vhost-user:/run/x,client", func(u *daemon.IOUnit) {
				u.LAN, u.Kind, u.NIC, u.Latency = "vhost-user:/run/x,client", lan.VhostUser, "/run/x,client", nil
			}, ""},
			{"--lan vhost-user:x", nil, "must be vhost-user:/DIRECTORY"},
			{"--lan vhost-user:/x --netns ns1", nil, "--netns: the ports of a user-space switch"},
			{"--queues 16 --max-hosts 3", func(u *daemon.IOUnit) { u.Queues, u.MaxHosts = 16, 3 }, ""},
			{"--queues 17", nil, "--queues 17: must be 1 to 16, or 0 for the default"},
			{"--direct=false", func(u *daemon.IOUnit) { u.Direct = false }, ""},
			{"--direct-after 0 --direct-peers 3", func(u *daemon.IOUnit) { u.DirectAfter, u.DirectPeers = 0, 3 }, ""},
			{"--direct-after -1", nil, "advanced.direct-after -1: must be 0 to 1000000000"},
			{"--direct-peers 0", nil, "advanced.direct-peers 0: must be 1 to 1024"},
			{"--max-hosts 0", nil, "--max-hosts 0: must be at least 1"},
			{"--modes send-uc,imm",
				func(u *daemon.IOUnit) { u.Modes = []protocol.Mode{protocol.ModeSendUC, protocol.ModeImm} }, ""},
			{"--modes imm,fast", nil, "--modes: "},
			{"--policy /p", func(u *daemon.IOUnit) { u.Policy = "/p" }, ""}, // the file is read later
			{"--max-memory 1.5G", func(u *daemon.IOUnit) { u.MaxMemory = 3 << 29 }, ""},
			{"--max-memory 2Gi", func(u *daemon.IOUnit) { u.MaxMemory = 2 << 30 }, ""},
			{"--max-memory lots", nil, `--max-memory: "lots" is no size`},
			{"--max-memory 2", nil, "such as 2G"},
			{"--max-memory 0", nil, "omit the flag"},
		}...))
	var f iounitFlags
	if _, err := parse(f.add, f.config); err == nil || !strings.Contains(err.Error(), "--lan is missing") {
		t.Errorf("no LAN: %v", err)
	}
}

// TestLeastMaxMemory gives --max-memory the size that is said to be enough, for each mode.
func TestLeastMaxMemory(t *testing.T) {
	of := func(args ...string) error {
		var f iounitFlags
		_, err := parse(f.add, f.config, append([]string{"--lan", "eth1"}, args...)...)
		return err
	}
	for _, mode := range protocol.Modes() {
		err := of("--modes", string(mode), "--max-memory", "64k")
		if err == nil {
			t.Fatalf("%v: 64k is enough", mode)
		}
		_, least, _ := strings.Cut(err.Error(), "which takes ")
		least, _, found := strings.Cut(least, " or more")
		if !found {
			t.Fatalf("%v: %v", mode, err)
		}
		if err := of("--modes", string(mode), "--max-memory", least); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
	}
}
