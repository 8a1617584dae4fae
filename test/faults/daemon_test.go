package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// daemon is a process of the product, a host or an I/O unit, on a machine.
type daemon struct {
	t       testing.TB
	m       *machine
	name    string
	args    []string
	id      int
	started bool // the process was started, and is not known to have ended
}

// newUnit starts the I/O unit.
func (r *fixture) newUnit(flags ...string) *daemon {
	r.t.Helper()
	args := []string{
		"iounit", "--device", "snrxe0", "--listen", unitAddress, "--lan", "macvtap:eth1", "--netns", cardNS, "--name", "unit",
		"--key", "/run/sn/unit.pem", "--trust", "hosts=" + r.prints["host"],
	}
	d := &daemon{t: r.t, m: r.unit, name: "unit", args: append(args, flags...)}
	d.start()
	r.onEnd(d)
	return d
}

// host is the daemon of a host, with its address on the LAN.
type host struct {
	*daemon
	address string // address of the host's sn0
}

// newHost starts the host on the host's machine and waits until its netdevice
// works.
func (r *fixture) newHost(flags ...string) *host {
	r.t.Helper()
	return r.hostOn(r.host, "host", "10.77.0.2", flags...)
}

// newNeighbour starts a host on the I/O unit's machine. It reaches the I/O unit without the cable.
func (r *fixture) newNeighbour(flags ...string) *host {
	r.t.Helper()
	return r.hostOn(r.unit, "neighbour", "10.77.0.3", flags...)
}

func (r *fixture) hostOn(m *machine, name, address string, flags ...string) *host {
	r.t.Helper()
	args := []string{
		"host", "--device", "snrxe0", "--iounit", unitAddress, "--name", "sn0", "--netns", appNS, "--host-name", name,
		"--key", "/run/sn/host.pem", "--trust", "unit=" + r.prints["unit"],
	}
	h := &host{daemon: &daemon{t: r.t, m: m, name: name, args: append(args, flags...)}, address: address}
	h.start()
	r.onEnd(h.daemon)
	h.ready()
	return h
}

// ready waits for the carrier and gives the netdevice its address.
func (h *host) ready() {
	h.t.Helper()
	h.waitCarrier(true)
	h.m.sh(h.t, fmt.Sprintf("ip -n %s addr replace %s/24 dev sn0", appNS, h.address))
}

// waitCarrier waits until the carrier of the netdevice is as wanted, and returns how long that
// took.
func (h *host) waitCarrier(want bool) time.Duration {
	h.t.Helper()
	return must[time.Duration](h.t, h.m, "WaitCarrier", Device{NS: appNS, Name: "sn0", Carrier: want})
}

// onEnd registers a cleanup that stops the daemon in the way of a service manager, and prints the
// end of its log if the test has failed.
func (r *fixture) onEnd(d *daemon) {
	r.t.Cleanup(func() {
		if !d.m.running() {
			return
		}
		if d.m.resume(d.t); d.started {
			d.stop()
		}
		if d.t.Failed() {
			text := string(must[[]byte](d.t, d.m, "ReadFile", d.log()))
			lines := strings.SplitAfter(text, "\n")
			d.t.Logf("the end of %s's log:\n%s", d.name, strings.Join(lines[max(0, len(lines)-25):], ""))
		}
	})
}

// socket returns the path of the status socket.
func (d *daemon) socket() string {
	for _, a := range d.args {
		if path, is := strings.CutPrefix(a, "--status-socket="); is {
			return path
		}
	}
	return "/run/sn/" + d.name + ".sock"
}

// log returns the path of the log file, which is beside the status socket.
func (d *daemon) log() string { return strings.TrimSuffix(d.socket(), "sock") + "log" }

// start starts the process, or starts it again after the previous process has ended.
func (d *daemon) start() {
	d.t.Helper()
	if !d.started {
		must[Result](d.t, d.m, "Run", Command{Args: []string{"rm", "-f", d.log()}})
	}
	words, config := testenv.SplitAdvanced(d.args)
	args := append([]string{program}, words...)
	if config != "" {
		path := "/run/sn/" + d.name + ".yaml"
		d.m.sh(d.t, "cat >"+path+" <<'end'\n"+config+"end")
		args = append(args, "--config="+path)
	}
	d.id = must[int](d.t, d.m, "Start", Command{Args: append(args, "--status-socket="+d.socket()), Log: d.log()})
	d.started = true
	if d.args[0] == "iounit" {
		eventually(d.t, func() bool { d.mustRun(); return d.statusInto(new(any)) }, "a status of the I/O unit")
	}
}

// mustRun fails the test if the process has ended.
func (d *daemon) mustRun() {
	d.t.Helper()
	if r := must[Result](d.t, d.m, "Wait", Wait{ID: d.id}); !r.Running {
		d.started = false
		d.t.Fatalf("%s ended with status %d", d.name, r.Status)
	}
}

func (d *daemon) signal(s unix.Signal) {
	d.t.Helper()
	must[struct{}](d.t, d.m, "Signal", Signal{ID: d.id, Signal: s})
}

// kill ends the process by SIGKILL.
func (d *daemon) kill() {
	d.t.Helper()
	d.signal(unix.SIGKILL)
	must[Result](d.t, d.m, "Wait", Wait{ID: d.id, Timeout: patience})
	d.started = false
}

// stop ends the process by SIGTERM and checks its status.
func (d *daemon) stop() {
	d.t.Helper()
	d.signal(unix.SIGTERM)
	r := must[Result](d.t, d.m, "Wait", Wait{ID: d.id, Timeout: patience})
	if d.started = false; r.Running || r.Status != 0 {
		d.t.Errorf("%s after SIGTERM: %+v", d.name, r)
	}
}

// channel is a channel of a session in the status.
type channel struct {
	TxFrames  uint64 `json:"tx_frames"`
	RxFrames  uint64 `json:"rx_frames"`
	RxDropped uint64 `json:"rx_dropped"`
	TxTooLong uint64 `json:"tx_too_long"`
	RxLost    uint64 `json:"rx_lost"`
	RxLate    uint64 `json:"rx_late"`
}

type traffic struct {
	Mode     string    `json:"mode"`
	Channels []channel `json:"channels"`
}

type hostStatus struct {
	State     string `json:"state"`
	Sessions  int    `json:"sessions"`
	LastError string `json:"last_error"`
	Netdevice struct {
		MTU     int  `json:"mtu"`
		Carrier bool `json:"carrier"`
	} `json:"netdevice"`
	Traffic *traffic `json:"traffic"`
}

type unitStatus struct {
	Hosts []struct {
		Name    string   `json:"name"`
		Traffic *traffic `json:"traffic"`
	} `json:"hosts"`
	Sessions uint64 `json:"sessions"`
}

// names returns the sorted names of the hosts that have a session.
func (u unitStatus) names() []string {
	var names []string
	for _, h := range u.Hosts {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return names
}

// statusInto gets the status with the command status, like a user, and reports whether there is
// one.
func (d *daemon) statusInto(into any) bool {
	d.t.Helper()
	r := d.m.try(d.t, program, "status", "--json", d.socket())
	if r.Status != 0 {
		return false
	}
	list := []any{into}
	if err := json.Unmarshal([]byte(r.Output), &list); err != nil {
		d.t.Fatalf("the status of %s is not a list of one: %v\n%s", d.name, err, r.Output)
	}
	return len(list) == 1
}

// status returns the status of the daemon. The test fails if there is none.
func status[S any](d *daemon) S {
	d.t.Helper()
	var s S
	if !d.statusInto(&s) {
		d.t.Fatalf("%s has no status", d.name)
	}
	return s
}

// sessions returns the number of sessions that the host has had.
func (h *host) sessions() int { h.t.Helper(); return status[hostStatus](h.daemon).Sessions }

// ping sends three pings from the host to the LAN, and expects an answer to each.
func (h *host) ping(args ...string) {
	h.t.Helper()
	args = append([]string{"ping", "-q", "-c", "3", "-i", "0.05", "-W", "5"}, args...)
	if r := h.m.in(h.t, appNS, append(args, lanAddress)...); r.Status != 0 {
		h.t.Errorf("%s: ping: %s", h.name, r.Output)
	}
}
