package faults

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// cable puts both ends of the cable in, or takes them out, as they are when
// somebody pulls it. It returns when that began.
func (r *fixture) cable(in bool) (since time.Time) {
	r.t.Helper()
	since = time.Now()
	for _, m := range r.machines() {
		m.plug(r.t, in)
	}
	return since
}

// What the fabric is made of, for lose.
const (
	rdmaPackets = "udp dport 4791"
	bootstrap   = "tcp dport 7580"
	answers     = "tcp sport 7580"
)

// lose has both machines lose what arrives and matches one of the rules, without
// a sign of it. It returns when the first of them did.
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

// netem has both machines treat what they send as tc-netem(8) says.
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

// lasts is for how long a fault lasts, where that is what is tested.
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

// neverUnready fails the test if a receiver was not ready on either machine since
// it was booted.
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

// losesCarrier waits until the host's netdevice loses its carrier, which it has to
// do in so much time since something happened.
func (r *fixture) losesCarrier(h *host, since time.Time, most time.Duration) {
	r.t.Helper()
	h.waitCarrier(false)
	took := time.Since(since)
	r.t.Logf("the carrier was lost after %v", took.Round(time.Millisecond))
	if !r.inTime(h.m, took, most) {
		r.t.Errorf("the carrier was lost after %v, expected %v at most", took, most)
	}
}

// inTime reports whether something took as long as it may, or, on a machine that gets
// little of this one's processors, as long and as a few processes of the product take
// there to start and end.
func (r *fixture) inTime(m *machine, took, most time.Duration) bool {
	r.t.Helper()
	if took <= most {
		return true
	}
	reference := r.process(m)
	r.t.Logf("it took %v, not %v; a process takes %v to start and end", took, most, reference)
	return took <= most+4*reference
}

// process is how long a process of the product takes on a machine to start and end.
func (r *fixture) process(m *machine) time.Duration {
	r.t.Helper()
	started := time.Now()
	if p := m.try(r.t, program, "--version"); p.Status != 0 {
		r.t.Fatalf("%s --version: %+v", program, p)
	}
	return time.Since(started)
}

// frees waits until the I/O unit has sessions with these hosts and no others,
// which it has to have in so much time since something happened to another.
func (r *fixture) frees(unit *daemon, since time.Time, most time.Duration, names ...string) {
	r.t.Helper()
	r.settled(unit, names...)
	took := time.Since(since)
	r.t.Logf("the I/O unit freed what the host had after %v", took.Round(time.Millisecond))
	if !r.inTime(unit.m, took, most) {
		r.t.Errorf("the I/O unit freed what the host had after %v, expected %v at most", took, most)
	}
}

// noticed is how long it may take to notice that the other machine is silent.
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
