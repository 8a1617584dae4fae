package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// modes are the transfer modes.
var modes = []string{"imm", "indicate", "send", "send-uc"}

// TestFaultsModes pulls the cable, and kills each process, in each transfer mode. It expects the
// TCP connection to survive the cable faults and the restart of the I/O unit.
func TestFaultsModes(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := newFixture(t)
			unit := r.newUnit("--peer-timeout=6s")
			h := r.newHost("--peer-timeout=6s", "--mode", mode)
			x := r.transfer(h, 512<<10)
			x.moves(128 << 10)
			r.cable(false)
			lasts(time.Second)
			r.cable(true)
			x.moves(128 << 10)
			if n := h.sessions(); n != 1 {
				t.Errorf("%d sessions after the cable was out for a second", n)
			}
			r.losesCarrier(h, r.cable(false), r.noticed(6*time.Second))
			r.cable(true)
			h.waitCarrier(true)
			x.moves(128 << 10)
			unit.kill()
			unit.start()
			x.moves(128 << 10)
			x.finish()
			h.kill()
			r.settled(unit)
			h.start()
			h.ready()
			h.ping()
			if mode != "send-uc" {
				r.neverUnready()
			}
		})
	}
}

// TestFaultsMTU tests combinations of small and large MTUs of the fabric and the LAN.
func TestFaultsMTU(t *testing.T) {
	for _, tc := range []struct{ fabric, lan int }{{1500, 1500}, {fabricMTU, 9000}, {1500, 9000}} {
		t.Run(fmt.Sprintf("fabric %d, LAN %d", tc.fabric, tc.lan), func(t *testing.T) {
			r := newFixture(t)
			setMTU := func(fabric, lan int) {
				for _, m := range r.machines() {
					m.sh(t, fmt.Sprintf("ip link set eth0 mtu %d", fabric))
				}
				r.unit.sh(t, fmt.Sprintf("ip -n %s link set eth1 mtu %d; ip -n %s link set lan0 mtu %d", cardNS, lan, lanNS, lan))
			}
			t.Cleanup(func() { setMTU(fabricMTU, 1500) })
			setMTU(tc.fabric, tc.lan)
			r.newUnit(patientPeers)
			h := r.newHost(patientPeers)
			if s := status[hostStatus](h.daemon); s.Netdevice.MTU != tc.lan {
				t.Errorf("the netdevice has MTU %d", s.Netdevice.MTU)
			}
			h.ping("-s", fmt.Sprint(tc.lan-28), "-M", "do")
			const size = 4 << 20
			x := r.transfer(h, unlimited)
			took := x.moves(size)
			t.Logf("TCP both ways at a time: %.1f MiB/s each", size/took.Seconds()/(1<<20))
			n := r.numbered(h, 200)
			x.moves(size / 2)
			up, down := n.finish()
			up.sound(t, "to the LAN")
			down.sound(t, "to the host")
			x.finish()
			r.neverUnready()
		})
	}
}

// TestFaultsPackets does what TestMachinesPackets does, with a higher rate of each packet fault,
// one fault after the other. Soft-RoCE treats a packet that overtakes another one as loss. Every
// second time only the timeout of the queue pair detects this loss, so the reordering cases have a
// timeout of 67 ms instead of the usual 1.07 s. The jitter is not much longer than the time between
// two packets: with 2 ms nearly every burst is out of order, and so are some in all seven retries.
func TestFaultsPackets(t *testing.T) {
	const some = 512 << 10
	for _, tc := range []struct {
		netem   string
		size    int64
		timeout string
	}{
		{"loss 1%", some, "18"},
		{"delay 5ms 2ms rate 1gbit", some, "18"}, // with a rate, the order stays
		{"duplicate 5%", some, "18"},
		{"corrupt 2%", some, "18"},
		{"delay 5ms reorder 5%", some / 4, "14"},
		{"delay 5ms 200us", some / 4, "14"},
	} {
		t.Run(tc.netem, func(t *testing.T) {
			r := newFixture(t)
			r.newUnit(patientPeers, "--advanced.qp-timeout="+tc.timeout)
			h := r.newHost(patientPeers, "--advanced.qp-timeout="+tc.timeout)
			r.packets(h, tc.netem, tc.size)
			r.noNetem()
			h.ping()
		})
	}
}

// TestFaultsDisk fills the disk to which the product writes its logs, sockets and keys. It expects
// sessions and restarts to work, and commands that create files to fail with an error that names
// the reason.
func TestFaultsDisk(t *testing.T) {
	r := newFixture(t)
	for _, m := range r.machines() {
		m.sh(t, "mkdir -p /run/full; mount -t tmpfs -o size=64k,nr_inodes=16 full /run/full")
		t.Cleanup(func() { m.sh(t, "umount /run/full") })
	}
	unit := r.newUnit("--peer-timeout=1500ms", "--status-socket=/run/full/unit.sock")
	h := r.newHost("--peer-timeout=1500ms", "--status-socket=/run/full/host.sock")
	x := r.transfer(h, 512<<10)
	for _, m := range r.machines() {
		// The log files cannot grow any more, and no more files can be created.
		m.sh(t, `
			dd if=/dev/zero of=/run/full/zeros bs=4k 2>/dev/null || true
			for i in {1..16}; do : >/run/full/$i || true; done 2>/dev/null
			if dd if=/dev/zero of=/run/full/1 bs=1 count=1 2>/dev/null; then echo "there is room"; exit 1; fi`)
	}
	t.Run("a session ends and begins", func(t *testing.T) {
		// This makes both processes write to their logs.
		r.lose(rdmaPackets, bootstrap, answers)
		h.waitCarrier(false)
		r.loseNothing()
		h.waitCarrier(true)
		x.moves(128 << 10)
		if s := status[hostStatus](h.daemon); s.Sessions != 2 || s.State != "connected" {
			t.Errorf("%+v", s)
		}
		r.settled(unit, "host")
	})
	t.Run("a process is killed and started", func(*testing.T) {
		// The sockets left by the killed processes make room for the new ones.
		unit.kill()
		unit.start()
		x.moves(128 << 10)
		x.finish()
		h.kill()
		h.start()
		h.ready()
		h.ping()
	})
	t.Run("key", func(t *testing.T) {
		const key = "/run/full/key.pem"
		keygen := []string{"keygen", "--out", key}
		refused(t, r.host, keygen, key, "no space left on device") // the file cannot be created
		r.host.sh(t, "rm /run/full/1")
		refused(t, r.host, keygen, key, "no space left on device") // the file cannot be written
		if res := r.host.try(t, "test", "-e", key); res.Status == 0 {
			t.Error("a part of a key was left behind")
		}
		r.host.sh(t, ": >/run/full/1")
	})
	t.Run("socket", func(t *testing.T) {
		const socket = "/run/full/another.sock"
		args := append(h.args[:len(h.args):len(h.args)], "--status-socket="+socket, "--name=sn1")
		refused(t, r.host, args, socket, "no space left on device")
	})
}

// refused runs a command of the product, and expects it to fail with one line that contains these
// words.
func refused(t *testing.T, m *machine, args []string, words ...string) {
	t.Helper()
	res := m.try(t, append([]string{program}, args...)...)
	if res.Status == 0 || strings.Count("\n"+res.Output, "\nsplitnic: ") != 1 {
		t.Errorf("splitnic %q: status %d, and printed\n%s", args, res.Status, res.Output)
	}
	for _, w := range words {
		if !strings.Contains(res.Output, w) {
			t.Errorf("splitnic %q does not say %q:\n%s", args, w, res.Output)
		}
	}
}
