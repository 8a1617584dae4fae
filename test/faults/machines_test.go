package faults

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patientPeers is the flag of both endpoints in tests in which a session has to outlast a fault.
const patientPeers = "--peer-timeout=10s"

// TestMachinesTransfer uses the netdevice without a fault, and expects that no frame is dropped.
func TestMachinesTransfer(t *testing.T) {
	r := newFixture(t)
	unit := r.newUnit(patientPeers)
	h := r.newHost(patientPeers)
	h.ping()
	h.ping("-s", "1472", "-M", "do")
	const size = 4 << 20
	x := r.transfer(h, unlimited)
	took := x.moves(size)
	t.Logf("TCP both ways at a time: %.1f MiB/s each", size/took.Seconds()/(1<<20))
	x.finish()
	s, u := status[hostStatus](h.daemon), status[unitStatus](unit)
	if s.Sessions != 1 || !s.Netdevice.Carrier || len(u.Hosts) != 1 {
		t.Fatalf("%+v\n%+v", s, u)
	}
	for _, c := range append(s.Traffic.Channels, u.Hosts[0].Traffic.Channels...) {
		if c.RxDropped != 0 || c.RxLost != 0 || c.TxTooLong != 0 || c.TxFrames == 0 || c.RxFrames == 0 {
			t.Errorf("frames were dropped, or none were counted: %+v", c)
		}
	}
	r.neverUnready()
}

// TestMachinesCable pulls the cable and puts it in again: before the peer is declared dead, where
// the session has to survive, and after, where a second session has to begin.
func TestMachinesCable(t *testing.T) {
	const timeout = 3 * time.Second
	r := newFixture(t)
	unit := r.newUnit("--peer-timeout", timeout.String())
	h := r.newHost("--peer-timeout", timeout.String())
	x := r.transfer(h, 1<<20)
	x.moves(256 << 10)
	t.Run("shortly", func(t *testing.T) {
		r.cable(false)
		lasts(timeout / 3)
		r.cable(true)
		t.Logf("the transfer went on after %v", x.moves(256<<10))
		if n := h.sessions(); n != 1 {
			t.Errorf("%d sessions after the cable was out for less than the peer time-out", n)
		}
	})
	t.Run("for long", func(t *testing.T) {
		since := r.cable(false)
		r.losesCarrier(h, since, r.noticed(timeout))
		r.frees(unit, since, r.noticed(timeout))
		r.cable(true)
		t.Logf("the carrier was back after %v", h.waitCarrier(true))
		t.Logf("the transfer went on after %v", x.moves(256<<10))
		if n := h.sessions(); n != 2 {
			t.Errorf("%d sessions after the cable was out once", n)
		}
	})
	x.finish()
	h.ping()
}

// TestMachinesSilence drops packets while the links of the cable keep their carriers. It expects
// the host's netdevice to lose its carrier, no session meanwhile, and a new session afterwards.
func TestMachinesSilence(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rules []string
		most  time.Duration // until the fault is noticed, with a peer time-out of 900 ms
	}{
		{"RDMA", []string{rdmaPackets}, time.Second},
		{"bootstrap", []string{bootstrap, answers}, 2 * time.Second},
		{"both", []string{rdmaPackets, bootstrap, answers}, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newFixture(t)
			unit := r.newUnit()
			h := r.newHost()
			x := r.transfer(h, 512<<10)
			x.moves(128 << 10)
			r.losesCarrier(h, r.lose(tc.rules...), r.noticed(tc.most))
			lasts(2 * time.Second)
			if n := h.sessions(); n != 1 {
				t.Errorf("the host had %d sessions more while nothing got through", n-1)
			}
			r.loseNothing()
			t.Logf("the carrier was back after %v", h.waitCarrier(true))
			t.Logf("the transfer went on after %v", x.moves(128<<10))
			x.finish()
			r.settled(unit, "host")
		})
	}
}

// TestMachinesPause pauses each machine: for less than the peer time-out, where the sessions have
// to survive, and for longer, where only the session over the cable ends and begins again.
func TestMachinesPause(t *testing.T) {
	r := newFixture(t)
	unit := r.newUnit()
	h := r.newHost()
	near := r.newNeighbour()
	x, y := r.transfer(h, 512<<10), r.transfer(near, 512<<10)
	moves := func() {
		t.Helper()
		x.moves(128 << 10)
		y.moves(128 << 10)
	}
	moves()
	t.Run("shortly", func(t *testing.T) {
		for _, m := range r.machines() {
			m.pause(t)
			lasts(300 * time.Millisecond)
			m.resume(t)
			moves()
		}
		if a, b := h.sessions(), near.sessions(); a != 1 || b != 1 {
			t.Errorf("%d and %d sessions after machines stood still for less than the peer time-out", a, b)
		}
	})
	t.Run("I/O unit", func(t *testing.T) {
		had := h.sessions()
		started := time.Now()
		r.unit.pause(t)
		r.losesCarrier(h, started, r.noticed(time.Second))
		lasts(time.Until(started.Add(5 * time.Second)))
		r.unit.resume(t)
		t.Logf("the carrier was back after %v", h.waitCarrier(true))
		moves()
		if n := h.sessions(); n != had+1 {
			t.Errorf("%d sessions more, expected one", n-had)
		}
		r.settled(unit, "host", "neighbour")
		if n := near.sessions(); n != 1 {
			t.Errorf("a session within the machine that stood still was given up: %d", n)
		}
	})
	t.Run("host", func(t *testing.T) {
		had := h.sessions()
		started := time.Now()
		r.host.pause(t)
		r.frees(unit, started, r.noticed(time.Second), "neighbour")
		y.moves(128 << 10)
		lasts(time.Until(started.Add(5 * time.Second)))
		r.host.resume(t)
		eventually(t, func() bool { return h.sessions() == had+1 }, "the next session of the host")
		h.waitCarrier(true)
		moves()
		if n := near.sessions(); n != 1 {
			t.Errorf("another host had %d sessions", n)
		}
	})
	x.finish()
	y.finish()
}

// kills is how many times TestMachinesKill kills the I/O unit. It takes the median, because other
// load of the machine can delay one of them.
const kills = 5

// TestMachinesKill kills the I/O unit's process several times, and then the host's. It expects the
// other side to notice in time, and the product to work again after a restart.
func TestMachinesKill(t *testing.T) {
	r := newFixture(t)
	unit := r.newUnit(patientPeers)
	h := r.newHost(patientPeers)
	x := r.transfer(h, 512<<10)
	x.moves(128 << 10)
	t.Run("I/O unit", func(t *testing.T) {
		var lost []time.Duration
		for range kills {
			started := time.Now()
			unit.signal(unix.SIGKILL)
			h.waitCarrier(false)
			lost = append(lost, time.Since(started).Round(time.Millisecond))
			unit.kill()
			unit.start()
			t.Logf("the carrier was back after %v", h.waitCarrier(true))
			t.Logf("the transfer went on after %v", x.moves(128<<10))
		}
		x.finish()
		t.Logf("the carrier was lost after %v", lost)
		slices.Sort(lost)
		// The promise is about the median. If the machine gets little of the processors, the time
		// of a process on the machine is added.
		most, median := r.within(50*time.Millisecond), lost[kills/2]
		if median > most && median > most+r.process(h.m) {
			t.Errorf("the carrier was lost after %v, the median of %v, expected %v at most", median, lost, most)
		}
	})
	t.Run("host", func(*testing.T) {
		started := time.Now()
		h.kill()
		r.frees(unit, started, r.within(time.Second))
		h.start()
		h.ready()
		h.ping()
	})
}

// TestMachinesPackets loses, duplicates, corrupts and delays some packets. It expects the session
// to survive and to lose no datagram.
func TestMachinesPackets(t *testing.T) {
	r := newFixture(t)
	r.newUnit(patientPeers)
	h := r.newHost(patientPeers)
	r.packets(h, "delay 1ms loss 0.5% duplicate 2% corrupt 0.5%", 256<<10)
	r.noNetem()
	h.ping()
}

// packets applies netem to the packets of the cable while a TCP connection and numbered datagrams
// use the netdevice. It expects no new session, and no lost datagram.
func (r *fixture) packets(h *host, netem string, size int64) {
	r.t.Helper()
	had := h.sessions()
	r.netem(netem)
	// The rate is low, because on Soft-RoCE a packet that is lost twice costs a second.
	x := r.transfer(h, 64<<10)
	n := r.numbered(h, 40)
	took := x.moves(size)
	up, down := n.finish()
	x.finish()
	r.t.Logf("netem %s: %d bytes both ways in %v", netem, size, took)
	up.sound(r.t, "to the LAN")
	down.sound(r.t, "to the host")
	if now := h.sessions(); now != had {
		r.t.Errorf("netem %s: %d sessions more", netem, now-had)
	} else if up.lost()+down.lost() > 0 {
		r.t.Errorf("netem %s: a session lost %d datagrams to the LAN, %d to the host", netem, up.lost(), down.lost())
	}
	r.neverUnready()
}

// TestMachinesClock sets the clocks of the machines while a connection is used, and expects the
// session to survive. Then it begins a new session with clocks that differ by 20 years.
func TestMachinesClock(t *testing.T) {
	r := newFixture(t)
	r.newUnit()
	h := r.newHost()
	x := r.transfer(h, 512<<10)
	x.moves(128 << 10)
	const hour, year = time.Hour, 365 * 24 * time.Hour
	for _, by := range []time.Duration{hour, -2 * hour, 20 * year, -30 * year, 10*year + hour} {
		for _, m := range r.machines() {
			must[struct{}](t, m, "SetClock", by)
			x.moves(128 << 10)
		}
	}
	if n := h.sessions(); n != 1 {
		t.Errorf("%d sessions after the clocks were set", n)
	}
	x.finish()
	// Begin a new session with clocks that differ by 20 years.
	must[struct{}](t, r.host, "SetClock", 20*year)
	h.stop()
	h.start()
	h.ready()
	h.ping()
	must[struct{}](t, r.host, "SetClock", -20*year)
}

// TestMachinesPower ends each machine like a loss of power, and boots it again. It expects the
// other machine to notice in time, and a new session after the boot.
func TestMachinesPower(t *testing.T) {
	r := newFixture(t)
	unit := r.newUnit()
	h := r.newHost()
	near := r.newNeighbour()
	h.ping()
	started := time.Now()
	r.host.kill()
	r.frees(unit, started, r.noticed(time.Second), "neighbour")
	near.ping()
	r.up(t)
	h.start()
	h.ready()
	h.ping()

	near.stop()
	started = time.Now()
	r.unit.kill()
	r.losesCarrier(h, started, r.noticed(time.Second))
	r.up(t)
	unit.start()
	t.Logf("the carrier was back after %v", h.waitCarrier(true))
	h.ping()
}
