//go:build cgo

package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/hostiletest"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// deviceState is what an endpoint has heard of its RDMA device.
type deviceState struct {
	Device struct {
		Gone   bool
		Losses int
		Events map[string]int
	} `json:"device_state"`
	Ended map[string]int `json:"ended_by"` // of an I/O unit's sessions
}

// deviceState waits until cond holds for what the endpoint has heard.
func (d *daemon) deviceState(cond func(s deviceState) bool) {
	d.t.Helper()
	var s deviceState
	eventually(d.t, func() bool {
		s = deviceState{}
		return d.statusInto(&s) && cond(s)
	}, "another state of the device than %+v", &s)
}

// absence lets RDMA devices disappear for the processes that it is given to.
type absence struct {
	t    testing.TB
	dir  string
	idle map[string]map[string]int // the devices' objects in the kernel without the product
}

// newAbsence makes an absence, and the environment of a process that sees it on adapters of a family.
// It is called before the product starts.
func newAbsence(t testing.TB, family string) (a *absence, env []string) {
	t.Helper()
	a = &absence{t, t.TempDir(), rdmaObjects(t)}
	return a, append(testenv.Adapter(t, family, adapterFacts), "SPLITNIC_ADAPTER_GONE="+a.dir)
}

func rdmaObjects(t testing.TB) map[string]map[string]int {
	t.Helper()
	devices, err := testenv.RDMAObjects()
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// held returns the objects that the product has on a device, of which it is the only user. Regions are
// not among them: their number changes with pools that are lent on request.
func (a *absence) held(device string) map[string]int {
	a.t.Helper()
	n := rdmaObjects(a.t)[device]
	for kind, idle := range a.idle[device] {
		n[kind] -= idle
	}
	delete(n, "mr")
	return n
}

// freed waits until the product has nothing on a device that has disappeared.
func (a *absence) freed(device string) {
	a.t.Helper()
	var now map[string]int
	eventually(a.t, func() bool {
		now = rdmaObjects(a.t)[device]
		return maps.Equal(now, a.idle[device])
	}, "%s to have no other objects than before the product, %v: it has %v", device, a.idle[device], &now)
}

func (a *absence) begin(device string) { write(a.t, a.dir, device, "") }

func (a *absence) end(device string) {
	a.t.Helper()
	if err := os.Remove(filepath.Join(a.dir, device)); err != nil {
		a.t.Fatal(err)
	}
}

// TestRDMAAdapterEvents has a host write where it may not, to I/O units on adapters that raise an
// event for that. On one of them the event is the only sign: flushed requests wake nobody, and queue
// pairs cannot be queried. The session has to end because of the event, which has to be counted.
func TestRDMAAdapterEvents(t *testing.T) {
	const metrics = "127.0.0.1:9596"
	attacks := hostiletest.Attacks()
	x := attacks[slices.IndexFunc(attacks, func(x hostiletest.Attack) bool { return x.Name == "write behind a pool" })]
	for family, want := range map[string]fabric.EventType{"mlx5": fabric.EventQPAccessErr, "mana": fabric.EventQPFatal} {
		t.Run(family, func(t *testing.T) {
			r := makeFixture(t, "macvtap", "--metrics", metrics)
			r.env = testenv.Adapter(t, family, adapterFacts)
			r.startUnit()
			_, bye := newAttacker(t, r).attack(t, protocol.ModeImm, x)
			if bye.Code != session.CodeFailed || !strings.Contains(bye.Message, want.String()) {
				t.Errorf("the I/O unit says bye with code %q: %q, want %q", bye.Code, bye.Message, want)
			}
			r.unit.deviceState(func(s deviceState) bool {
				return !s.Device.Gone && s.Device.Events[want.Key()] == 1 && s.Ended["queue-pair"] == 1
			})
			resp, err := http.Get("http://" + metrics + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			line := fmt.Sprintf("splitnic_rdma_device_events_total{device=%q,event=%q} 1\n", unitDevice, want.Key())
			if err != nil || !strings.Contains(string(b), line) {
				t.Errorf("the metrics lack %q: %v", line, err)
			}
		})
	}
}

// TestRDMAAdapterRemoved takes the adapter away from one end of a session that a TCP connection
// uses, as an unplug or a reset of the firmware does: a fatal event, and EIO from all calls. The host
// has to keep its netdevice without carrier, and to have a session again when the adapter is back. An
// end whose adapter is away has to give up all that it had there, and to end on SIGTERM.
func TestRDMAAdapterRemoved(t *testing.T) {
	for _, c := range []struct{ end, family, device string }{
		{"host", "mlx5", hostDevice}, {"unit", "mana", unitDevice},
	} {
		t.Run(c.end, func(t *testing.T) {
			r := makeFixture(t, "macvtap")
			away, env := newAbsence(t, c.family)
			plain := testenv.Adapter(t, c.family, adapterFacts)
			r.env = map[bool][]string{false: plain, true: env}[c.end == "unit"]
			r.startUnit()
			r.env = map[bool][]string{false: plain, true: env}[c.end == "host"]
			h := r.host(t)
			d := map[string]*daemon{"host": h.daemon, "unit": r.unit}[c.end]
			stream := startStreaming(t, r.lan, h.ns, streamPause)
			stream.proceeds(t)
			index := testenv.Link(t, h.ns, "sn0").Attrs().Index
			held := away.held(c.device)
			for round := range 2 {
				away.begin(c.device)
				h.waitCarrier(false)
				d.deviceState(func(s deviceState) bool {
					return s.Device.Gone && s.Device.Losses == round+1 && s.Device.Events["device-fatal"] == round+1 &&
						(c.end == "host" || s.Ended["device"] == round+1)
				})
				away.freed(c.device)
				away.end(c.device)
				h.waitCarrier(true)
				stream.proceeds(t)
				if now := away.held(c.device); !maps.Equal(now, held) {
					t.Errorf("after %d absences the objects are %v, before them they were %v", round+1, now, held)
				}
				if got := testenv.Link(t, h.ns, "sn0").Attrs().Index; got != index {
					t.Errorf("sn0 is another netdevice: %d and not %d", got, index)
				}
			}
			ping(t, r.lan, h.addr(), 1, 1472)
			ping(t, h.ns, addr6(0), 1, 56)
			stream.finish(t)
			away.begin(c.device)
			h.waitCarrier(false)
			d.stop()
		})
	}
}

// kinds are families of adapters that differ from others in what an endpoint asks of them.
var kinds = []string{
	"mana",       // no windows, no usable inline data, no query, no solicited events; refuses posts, wakes nobody
	"erdma",      // refuses posts with a negative number
	"bnxt_re",    // windows that are announced and do not exist; a failed queue pair wakes nobody, and raises no event
	"irdma-e810", // arming for solicited completions is arming for all
	"hns-hip08",  // inline data is cut
	"ionic",      // windows; wakes nobody
}

// TestRDMAAdapterFailover takes the adapter away from the first of two I/O units, under a TCP
// connection. The host has to move to the second one with its MAC address, and back when the adapter
// is back.
func TestRDMAAdapterFailover(t *testing.T) {
	for _, family := range kinds {
		t.Run(family, func(t *testing.T) {
			r := makeFixture(t, "macvtap")
			away, env := newAbsence(t, family)
			r.env = env
			r.startUnit()
			r.env = testenv.Adapter(t, family, adapterFacts)
			p := r.pair(t, "--standby")
			p.arrive(t, 1, true)
			k := hold(t, r, p.host)
			mac := p.host.mac()
			away.begin(unitDevice)
			p.arrive(t, 1, false)
			p.host.waitCarrier(true)
			k.send(t)
			away.end(unitDevice)
			p.arrive(t, 0, true)
			run(t, p.bin, "host", "failover", p.host.sock, "--to", unitAddress)
			p.arrive(t, 0, false)
			k.send(t)
			k.check(t)
			if now := p.host.mac(); now != mac {
				t.Errorf("the MAC address changed from %s to %s", mac, now)
			}
		})
	}
}

// TestRDMAAdapterAgent runs an agent with a card on each of two adapters, and takes one of them away.
// The card on it has to lose its carrier, to give up all that it had there, and to have a session again
// when the adapter is back, with the same netdevice; the other card must not notice.
func TestRDMAAdapterAgent(t *testing.T) {
	for _, family := range kinds {
		t.Run(family, func(t *testing.T) {
			r := makeFixture(t, "macvtap", "--advanced.handshake-timeout", patience.String())
			away, env := newAbsence(t, family)
			r.env = testenv.Adapter(t, family, adapterFacts)
			r.startUnit()
			r.env = env
			a := r.newAgent(t)
			spaces := map[string]string{"stays": testenv.NetNS(t), "goes": testenv.NetNS(t)}
			i := 0
			for card, device := range map[string]string{"stays": unitDevice, "goes": hostDevice} {
				i++
				a.card("add", card, "--netns", spaces[card], "--netdev", "eth0", "--device", device)
				a.connected(card)
				testenv.Address(t, spaces[card], "eth0", addr(i)+"/24")
				ping(t, spaces[card], addr(0), 1, 56)
			}
			stream := startStreaming(t, r.lan, spaces["goes"], streamPause)
			stream.proceeds(t)
			beside := startStreaming(t, r.lan, spaces["stays"], streamPause)
			index := testenv.Link(t, spaces["goes"], "eth0").Attrs().Index
			since := a.cards()["stays"].Since

			away.begin(hostDevice)
			card := *a.daemon
			card.sock = a.socketOf("goes")
			card.deviceState(func(s deviceState) bool { return s.Device.Gone && s.Device.Events["device-fatal"] == 1 })
			eventually(t, func() bool { return !carrier(t, spaces["goes"], "eth0") }, "a card without carrier")
			away.freed(hostDevice)
			beside.proceeds(t)
			away.end(hostDevice)
			a.connected("goes")
			stream.proceeds(t)
			if got := testenv.Link(t, spaces["goes"], "eth0").Attrs().Index; got != index {
				t.Errorf("eth0 is another netdevice: %d and not %d", got, index)
			}
			if now := a.cards()["stays"]; now.State != "connected" || now.Since != since {
				t.Errorf("the card beside is %+v, connected since %s before", now, since)
			}
			stream.finish(t)
			beside.finish(t)
			a.card("del", "goes")
			a.card("del", "stays")
		})
	}
}

// TestRDMAAdapterBench runs each measurement of the device, with both ends in one process.
func TestRDMAAdapterBench(t *testing.T) {
	bin := needFabric(t)
	for _, family := range kinds {
		t.Run(family, func(t *testing.T) {
			for _, kind := range []string{"bw", "lat", "pps"} {
				cmd := exec.CommandContext(t.Context(), bin, "bench", kind, "--device", hostDevice, "--peer-device", unitDevice,
					"--iters", "50", "--mode", "imm,indicate,send")
				cmd.Env = append(os.Environ(), testenv.Adapter(t, family, adapterFacts)...)
				out, err := cmd.CombinedOutput()
				if got := rows(t, string(out)); err != nil || len(got) != 3 {
					t.Errorf("%s: %v, want a row for each mode:\n%s", kind, err, out)
				}
			}
		})
	}
}
