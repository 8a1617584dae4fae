package faults

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// cable connects both ends of the cable, or disconnects them as if the cable was pulled. It returns
// the time at which it began.
func (r *fixture) cable(in bool) (since time.Time) {
	r.t.Helper()
	since = time.Now()
	for _, m := range r.machines() {
		m.plug(r.t, in)
	}
	return since
}

// Rules for lose that match the kinds of packets of the fabric.
const (
	rdmaPackets = "udp dport 4791"
	bootstrap   = "tcp dport 7580"
	answers     = "tcp sport 7580"
)

// lose has both machines silently drop the arriving packets that match one of the rules. It returns
// the time from which the first machine did so.
func (r *fixture) lose(rules ...string) (since time.Time) {
	r.t.Helper()
	var script strings.Builder
	script.WriteString("nft -f - <<'RULES'\ntable inet faults {\nchain input {\ntype filter hook input priority 0;\n")
	for _, rule := range rules {
		script.WriteString("iifname eth0 " + rule + " drop\n")
	}
	script.WriteString("}\n}\nRULES\n")
	for _, m := range r.machines() {
		m.sh(r.t, script.String())
		if since.IsZero() {
			since = time.Now()
		}
	}
	return since
}

// loseNothing ends lose.
func (r *fixture) loseNothing() {
	r.t.Helper()
	for _, m := range r.machines() {
		m.sh(r.t, "nft flush ruleset")
	}
}

// netem has both machines apply tc-netem(8) with args to the packets that they send.
func (r *fixture) netem(args string) {
	r.t.Helper()
	for _, m := range r.machines() {
		m.sh(r.t, "tc qdisc replace dev eth0 root netem "+args)
	}
}

// noNetem ends netem.
func (r *fixture) noNetem() {
	r.t.Helper()
	for _, m := range r.machines() {
		m.sh(r.t, "tc qdisc del dev eth0 root")
	}
}

// lasts waits for d, in tests where the duration of a fault matters.
func lasts(d time.Duration) { <-time.After(d) }

// counters returns the machine's counters of its RDMA device.
func (m *machine) counters(t testing.TB) map[string]uint64 {
	t.Helper()
	counters := map[string]uint64{}
	for line := range strings.Lines(m.sh(t, ". ci/softroce/topology.sh; rxe_counters snrxe0")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatalf("%s: counter %q: %v", m.name, line, err)
		}
		counters[name] = n
	}
	return counters
}

// neverUnready fails the test if either machine counted a receiver-not-ready (RNR) error since its
// boot.
func (r *fixture) neverUnready() {
	r.t.Helper()
	for _, m := range r.machines() {
		c := m.counters(r.t)
		for _, name := range []string{"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"} {
			if n, there := c[name]; n != 0 || !there {
				r.t.Errorf("%s: %s is %d (there: %t)", m.name, name, n, there)
			}
		}
	}
}

// losesCarrier waits until the host's netdevice loses its carrier, and fails the test if that took
// longer than most, counted from since.
func (r *fixture) losesCarrier(h *host, since time.Time, most time.Duration) {
	r.t.Helper()
	h.waitCarrier(false)
	took := time.Since(since)
	r.t.Logf("the carrier was lost after %v", took.Round(time.Millisecond))
	if !r.inTime(h.m, took, most) {
		r.t.Errorf("the carrier was lost after %v, expected %v at most", took, most)
	}
}

// inTime reports whether took is at most most. If took is longer, it is still in time if it exceeds
// most by at most four times the time of a process on the machine: a guest may get little of the
// processors.
func (r *fixture) inTime(m *machine, took, most time.Duration) bool {
	r.t.Helper()
	if took <= most {
		return true
	}
	reference := r.process(m)
	r.t.Logf("it took %v, not %v; a process takes %v to start and end", took, most, reference)
	return took <= most+4*reference
}

// process returns how long a process of the product takes on a machine to start and end.
func (r *fixture) process(m *machine) time.Duration {
	r.t.Helper()
	started := time.Now()
	if p := m.try(r.t, program, "--version"); p.Status != 0 {
		r.t.Fatalf("%s --version: %+v", program, p)
	}
	return time.Since(started)
}

// frees waits until the I/O unit has sessions with these hosts and no others, and fails the test if
// that took longer than most, counted from the fault of another host at since.
func (r *fixture) frees(unit *daemon, since time.Time, most time.Duration, names ...string) {
	r.t.Helper()
	r.settled(unit, names...)
	took := time.Since(since)
	r.t.Logf("the I/O unit freed what the host had after %v", took.Round(time.Millisecond))
	if !r.inTime(unit.m, took, most) {
		r.t.Errorf("the I/O unit freed what the host had after %v, expected %v at most", took, most)
	}
}

// noticed returns how long an endpoint with this peer time-out may take to notice a silent peer.
func (r *fixture) noticed(timeout time.Duration) time.Duration {
	return timeout + r.within(500*time.Millisecond)
}

// settled waits until the I/O unit has sessions with these hosts and no others.
func (r *fixture) settled(unit *daemon, names ...string) {
	r.t.Helper()
	want := strings.Join(names, " ")
	eventually(r.t, func() bool {
		return strings.Join(status[unitStatus](unit).names(), " ") == want
	}, "sessions with the hosts [%s] alone", want)
}
