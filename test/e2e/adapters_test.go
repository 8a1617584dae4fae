package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/adapters"
	"github.com/splitnic/splitnic/internal/testenv"
)

const adapterFacts = "../../internal/adapters/facts.txt"

// TestRDMAAdapters runs sessions between Soft-RoCE devices that behave like each family of
// adapters, with the defaults: frames of all sizes, beside TCP in both directions. All contents are
// compared.
func TestRDMAAdapters(t *testing.T) {
	for _, f := range adapters.All() {
		if f.Suitable() {
			t.Run(f.Name, func(t *testing.T) { testAdapter(t, f) })
		}
	}
}

// TestRDMAAdapterPairs runs sessions between adapters of different families, whose limits differ.
func TestRDMAAdapterPairs(t *testing.T) {
	for _, p := range [][2]string{{"mlx5", "mana"}, {"irdma-e810", "ionic"}} {
		t.Run(p[0]+" and "+p[1], func(t *testing.T) { runAdapters(t, adapters.Named(p[0]), adapters.Named(p[1])) })
	}
}

func testAdapter(t *testing.T, f *adapters.Family) {
	h := runAdapters(t, f, f)
	adapterDoctor(t, h.fixture, f)
	var s struct {
		Traffic struct{ Protection protection }
	}
	// Soft-RoCE does not enforce the bounds of windows: who believes what is announced chooses them.
	if !h.statusInto(&s) || s.Traffic.Protection.Name != "region" {
		t.Errorf("protection %+v, want region", s.Traffic.Protection)
	}
}

// runAdapters runs an I/O unit and a host, and returns the host.
func runAdapters(t *testing.T, unit, host *adapters.Family) *node {
	t.Helper()
	r := makeFixture(t, "macvtap")
	r.env = testenv.Adapter(t, unit.Name, adapterFacts)
	r.startUnit()
	r.env = testenv.Adapter(t, host.Name, adapterFacts)
	h := r.host(t)
	stream := startStreaming(t, r.lan, h.ns, streamPause)
	for _, size := range pingSizes {
		ping(t, h.ns, addr(0), 2, size)
		ping(t, r.lan, h.addr(), 2, size)
	}
	stream.proceeds(t)
	if stream.finish(t) == 0 {
		t.Error("no data over TCP")
	}
	return h
}

// adapterDoctor runs the doctor, which has to name the driver and find nothing wrong with the device.
func adapterDoctor(t *testing.T, r *fixture, f *adapters.Family) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.bin, "doctor", "--json", "--device", hostDevice)
	r.prepare(cmd)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // the machine may lack something else
		t.Fatal(err)
	}
	var findings []struct{ Check, Status, Found string }
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	named := false
	for _, l := range findings {
		if l.Check != hostDevice {
			continue
		}
		named = named || strings.HasPrefix(l.Found, "driver "+f.Driver+",")
		if l.Status == "error" {
			t.Errorf("%+v", l)
		}
	}
	if !named {
		t.Errorf("no line names the driver %s:\n%s", f.Driver, out)
	}
}

// TestRDMAAdapterRefused starts all commands on adapters that cannot have sessions: each has to
// end with a sentence that names the device, the reason, and what to use instead.
func TestRDMAAdapterRefused(t *testing.T) {
	r := makeFixture(t, "macvtap")
	k := r.keys
	for _, f := range adapters.All() {
		if f.Suitable() {
			continue
		}
		words := []string{hostDevice, "reliable connections", "use an InfiniBand or RoCE adapter"}
		if f.Transport == "iwarp" {
			words[1] = "iWARP has no writes with immediate data"
		}
		environment := append([]string{"env"}, testenv.Adapter(t, f.Name, adapterFacts)...)
		for _, m := range []mistake{
			{"host", []string{
				"host", "--device", hostDevice, "--iounit", unitAddress, "--key", k.host, "--trust", k.unitPrint,
			}, exitMissing, words},
			{"iounit", []string{
				"iounit", "--device", hostDevice, "--lan", "macvtap:eth1", "--netns", r.card, "--key", k.unit, "--trust",
				k.hostPrint,
			}, exitMissing, words},
			{"self-test", []string{"doctor", "--self-test", "--device", hostDevice}, exitMissing, words},
		} {
			t.Run(f.Name+"/"+m.name, func(t *testing.T) { m.fails(t, append(environment, r.bin)...) })
		}
		t.Run(f.Name+"/doctor", func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), r.bin, "doctor", "--device", hostDevice)
			cmd.Env = append(os.Environ(), environment[1:]...)
			out, err := cmd.Output()
			if cmd.ProcessState.ExitCode() != exitMissing {
				t.Errorf("%v", err)
			}
			for _, w := range words {
				if !strings.Contains(string(out), w) {
					t.Errorf("the doctor does not say %q:\n%s", w, out)
				}
			}
		})
	}
}
