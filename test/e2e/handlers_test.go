package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// handlerStatus is a completion-queue handler, as in the status.
type handlerStatus struct {
	Number          int    `json:"number"`
	Processors      string `json:"processors"`
	Priority        int    `json:"priority"`
	Budget          int    `json:"budget"`
	Spin            int64  `json:"spin_ns"`
	Adaptive        bool   `json:"adaptive"`
	Vector          int    `json:"comp_vector"`
	Channels        []int  `json:"channels"`
	Completions     uint64 `json:"completions"`
	Wakeups         uint64 `json:"wakeups"`
	BudgetExhausted uint64 `json:"budget_exhausted"`
	Workers         []struct {
		Channel    int    `json:"channel"`
		Role       string `json:"role"`
		Thread     int    `json:"thread"`
		Processors string `json:"processors"`
		Priority   int    `json:"priority"`
		Pending    bool   `json:"pending"`
		Error      string `json:"error"`
	} `json:"workers"`
}

type handlersTraffic struct {
	Handlers []handlerStatus `json:"handlers"`
	Channels []struct {
		Handler int `json:"handler"`
		Vector  int `json:"comp_vector"`
	} `json:"channels"`
}

// handlersStatus is the part about handlers in the status of a host or of an I/O unit.
type handlersStatus struct {
	CompVectors int              `json:"comp_vectors"`
	Traffic     *handlersTraffic `json:"traffic"` // only in a host's status
	Hosts       []struct {
		Name    string           `json:"name"`
		Traffic *handlersTraffic `json:"traffic"`
	} `json:"hosts"` // only in an I/O unit's status
}

// handlers waits until an endpoint has one session whose workers have applied the configuration of
// their handlers. It returns the number of completion vectors and the status of the handlers.
func (d *daemon) handlers() (int, *handlersTraffic) {
	d.t.Helper()
	var s handlersStatus
	var tr *handlersTraffic
	eventually(d.t, func() bool {
		s = handlersStatus{}
		if !d.statusInto(&s) {
			return false
		}
		if tr = s.Traffic; tr == nil && len(s.Hosts) == 1 {
			tr = s.Hosts[0].Traffic
		}
		if tr == nil {
			return false
		}
		for _, h := range tr.Handlers {
			for _, w := range h.Workers {
				if w.Pending {
					return false
				}
			}
		}
		return true
	}, "a session at %s whose workers follow their handlers", d.sock)
	return s.CompVectors, tr
}

// firstCPU returns the number of the first processor that this process may use.
func firstCPU(t testing.TB) string {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if set.IsSet(i) {
			return strconv.Itoa(i)
		}
	}
	t.Fatal("there is no processor")
	return ""
}

// checkThreads checks that the workers of a handler have the processors and the priority, by the
// status and by the kernel's information about their threads.
func checkThreads(t testing.TB, what string, h *handlerStatus, cpu string, priority int) {
	t.Helper()
	for _, w := range h.Workers {
		if w.Error != "" || w.Thread == 0 || w.Processors != cpu || w.Priority != priority {
			t.Errorf("%s: a worker is not where it was sent: %+v", what, w)
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Thread))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(text), "\nCpus_allowed_list:\t"+cpu+"\n") {
			t.Errorf("%s: thread %d may not run on %s alone:\n%s", what, w.Thread, cpu, text)
		}
		n, err := unix.Getpriority(unix.PRIO_PROCESS, w.Thread)
		if err != nil || 20-n != priority {
			t.Errorf("%s: thread %d has priority %d, %v", what, w.Thread, 20-n, err)
		}
	}
}

// TestRDMAHandlerCommands starts both endpoints with configured handlers and checks them in the
// status. It changes them with the product's commands while echo requests pass: processors,
// priority, budget, polling, and the assignment of queues. Then it restarts the I/O unit: the
// host's next session has to have the handlers of its last one.
func TestRDMAHandlerCommands(t *testing.T) {
	cpu := firstCPU(t)
	r := newFixture(t, "macvtap", "--queues", "2", "--advanced.handlers", "2", "--advanced.handler-cpus", "1="+cpu,
		"--advanced.poll-budget", "17")
	config := write(t, t.TempDir(), "host.yaml", "advanced:\n  handlers: 2\n  handler-priority: 1=5\n  spin: 10us\n")
	h := r.host(t, "--queues", "2", "--config", config)
	ping(t, h.ns, addr(0), 20, 56)

	vectors, tr := h.handlers()
	if len(tr.Handlers) != 3 || len(tr.Channels) != 2 || vectors < 1 {
		t.Fatalf("the host has %d handlers, %d channels, %d completion vectors", len(tr.Handlers), len(tr.Channels), vectors)
	}
	for i, c := range tr.Channels {
		if c.Handler != 1+i || c.Vector != (1+i)%vectors {
			t.Errorf("the host's queue %d is with handler %d, on completion vector %d of %d", 1+i, c.Handler, c.Vector, vectors)
		}
	}
	if one := &tr.Handlers[1]; one.Priority != 5 || one.Spin != 10000 || one.Processors != "" {
		t.Errorf("the host's first handler: %+v", one)
	} else {
		all := one.Workers[0].Processors
		checkThreads(t, "host", one, all, 5)
	}
	var completions, wakeups uint64
	for _, x := range tr.Handlers {
		completions, wakeups = completions+x.Completions, wakeups+x.Wakeups
	}
	if completions == 0 || wakeups == 0 {
		t.Errorf("%d completions and %d wake-ups are counted", completions, wakeups)
	}
	_, ur := r.unit.handlers()
	if one := &ur.Handlers[1]; one.Processors != cpu || one.Budget != 17 {
		t.Errorf("the I/O unit's first handler: %+v", one)
	} else {
		checkThreads(t, "I/O unit", one, cpu, one.Workers[0].Priority)
	}

	// From here to stop, echo requests pass.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pings := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := echo(h.ns, netip.MustParseAddr(addr(0)), 10, 1400); err != nil {
				pings <- err
				return
			}
		}
		pings <- nil
	}()
	for i := range 10 {
		run(t, r.bin, "host", "handlers", h.sock, "--assign", fmt.Sprintf("1=%d", 1+i%2), "--assign",
			fmt.Sprintf("2=%d", 2-i%2))
		run(t, r.bin, "iounit", "handlers", h.name, r.unit.sock, "--assign", fmt.Sprintf("1=%d", 2-i%2))
	}
	out := run(t, r.bin, "host", "handlers", h.sock, "--assign", "1=2", "--assign", "2=2",
		"--cpus", "2="+cpu, "--priority", "2=3", "--budget", "2=5", "--spin", "2=auto:1ms")
	for _, word := range []string{"queues 1, 2", "processors " + cpu, "priority 3", "budget 5",
		"polls for up to 1ms, adaptively", "completion vectors"} {
		if !strings.Contains(out, word) {
			t.Errorf("the command does not say %q:\n%s", word, out)
		}
	}
	out = run(t, r.bin, "iounit", "handlers", h.name, r.unit.sock, "--cpus", "1=any", "--cpus", "2="+cpu,
		"--assign", "1=2", "--json")
	var view struct {
		CompVectors int             `json:"comp_vectors"`
		Handlers    []handlerStatus `json:"handlers"`
	}
	if err := json.Unmarshal([]byte(out), &view); err != nil || view.CompVectors != vectors || len(view.Handlers) != 3 {
		t.Errorf("the command's JSON: %v\n%s", err, out)
	}
	stop()
	if err := <-pings; err != nil {
		t.Errorf("ping while handlers changed: %v", err)
	}

	check := func(what string) {
		t.Helper()
		_, tr := h.handlers()
		two := &tr.Handlers[2]
		if two.Processors != cpu || two.Priority != 3 || two.Budget != 5 || two.Spin != 1e6 || !two.Adaptive ||
			fmt.Sprint(two.Channels) != "[1 2]" || len(two.Workers) != 4 {
			t.Errorf("%s: the host's second handler: %+v", what, two)
		}
		checkThreads(t, what, two, cpu, 3)
		if one := &tr.Handlers[1]; len(one.Workers) != 0 {
			t.Errorf("%s: the host's first handler: %+v", what, one)
		}
	}
	check("after the changes")
	_, ur = r.unit.handlers()
	if two := &ur.Handlers[2]; two.Processors != cpu || len(two.Workers) != 4 {
		t.Errorf("the I/O unit's second handler: %+v", two)
	} else {
		checkThreads(t, "I/O unit, after the changes", two, cpu, two.Workers[0].Priority)
	}
	_, tr = h.handlers()
	if got, want := tr.Channels[0].Vector, 1%vectors; got != want {
		t.Errorf("within the session queue 1 has moved to completion vector %d from %d", got, want)
	}

	// Each of these has to be refused with a remedy, and must not change anything.
	for _, m := range []mistake{
		{"a handler that is not there", []string{"host", "handlers", h.sock, "--budget", "9=5"}, exitFailure,
			[]string{"handler 9", "1 to 2"}},
		{"a queue that is not there", []string{"host", "handlers", h.sock, "--assign", "3=1"}, exitFailure,
			[]string{"channel 3", "1 to 2"}},
		{"the control channel's handler", []string{"host", "handlers", h.sock, "--assign", "1=0"}, exitFailure,
			[]string{"control channel"}},
		{"a processor that is not there", []string{"host", "handlers", h.sock, "--cpus", "1=1023"}, exitFailure,
			[]string{"1023", "this machine has"}},
		{"no number", []string{"host", "handlers", h.sock, "--budget", "1=many"}, exitUsage, []string{"--budget 1=many"}},
		{"a host that is not there", []string{"iounit", "handlers", "nobody", r.unit.sock, "--budget", "1=5"},
			exitFailure, []string{"nobody", h.name}},
		{"no host", []string{"iounit", "handlers"}, exitUsage, []string{"HOST"}},
		{"the peer", []string{"host", "handlers", r.unit.sock}, exitUsage, []string{"iounit"}},
		{"nobody", []string{"host", "handlers", filepath.Join(t.TempDir(), "none.sock")}, exitMissing,
			[]string{"none.sock", "splitnic status"}},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, r.bin) })
	}
	check("after the mistakes")

	// The new I/O unit begins with its flags. The host keeps its changed configuration.
	r.unit.stop()
	h.waitCarrier(false)
	r.startUnit()
	h.waitCarrier(true)
	check("in the next session")
	_, tr = h.handlers()
	for i, c := range tr.Channels {
		if c.Vector != 2%vectors {
			t.Errorf("in the next session queue %d is on completion vector %d of %d", 1+i, c.Vector, vectors)
		}
	}
	_, ur = r.unit.handlers()
	if one := &ur.Handlers[1]; one.Processors != cpu || fmt.Sprint(one.Channels) != "[1]" {
		t.Errorf("the new I/O unit's first handler: %+v", one)
	}
	ping(t, h.ns, addr(0), 5, 1400)
	out = run(t, r.bin, "status", "-v", h.sock)
	for _, word := range []string{"completion vectors", "handler 2", "queues 1, 2", "budget 5"} {
		if !strings.Contains(out, word) {
			t.Errorf("the status does not say %q:\n%s", word, out)
		}
	}
}

// TestHandlerMistakes starts endpoints with wrong settings of handlers, which have to be refused.
func TestHandlerMistakes(t *testing.T) {
	bin, dir := needBinary(t), t.TempDir()
	k := makeKeys(t, dir)
	host := func(args ...string) []string {
		return append([]string{"host", "--iounit", "192.0.2.1", "--key", k.host, "--trust", k.unitPrint}, args...)
	}
	iounit := func(args ...string) []string {
		return append([]string{"iounit", "--lan", "eth1", "--key", k.unit, "--trust", k.hostPrint}, args...)
	}
	for _, m := range []mistake{
		{"too many handlers", host("--advanced.handlers", "1000"), exitUsage,
			[]string{"advanced.handlers 1000", "1 to 32"}},
		{"no budget", iounit("--advanced.poll-budget", "0"), exitUsage, []string{"advanced.poll-budget 0"}},
		{"polling for too long", host("--advanced.spin", "1m"), exitUsage,
			[]string{"advanced.spin", "1m0s: must be 0s to 1s"}},
		{"no processor", host("--advanced.handler-cpus", "all"), exitUsage,
			[]string{"advanced.handler-cpus", "all", "0-3,8"}},
		{"a processor that is not there", iounit("--advanced.handler-cpus", "1023"), exitUsage,
			[]string{"1023", "this machine has"}},
		{"a handler that is not there", host("--advanced.handlers", "1", "--advanced.handler-cpus", "2=0"), exitUsage,
			[]string{"handler 2", "advanced.handlers"}},
		{"no way of interrupts", host("--advanced.irq-affinity", "on"), exitUsage,
			[]string{"advanced.irq-affinity", "follow"}},
		{"no priority", host("--advanced.handler-priority", "high"), exitUsage,
			[]string{"advanced.handler-priority", "latency"}},
		{"no number of a handler", host("--advanced.handler-priority", "first=5"), exitUsage,
			[]string{"advanced.handler-priority", "first"}},
		{"a processor of no handler", host("--advanced.handler-cpus", "0,1=1"), exitUsage,
			[]string{"advanced.handler-cpus", "NUMBER=0"}},
		{"a handler twice", iounit("--advanced.handler-priority", "1=5,1=6"), exitUsage,
			[]string{"advanced.handler-priority", "duplicate"}},
		{"beyond all priorities", iounit("--advanced.handler-priority", "-21"), exitUsage,
			[]string{"advanced.handler-priority", "-20"}},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, bin) })
	}
	t.Run("a processor outside the mask", func(t *testing.T) {
		testenv.NeedTools(t, "taskset")
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		first := firstCPU(t)
		n, _ := strconv.Atoi(first)
		other := n + 1
		for other < 1024 && !set.IsSet(other) {
			other++
		}
		if other == 1024 { // there is no processor to leave out of the mask
			mistake{"", host("--advanced.handler-cpus", first+",1022"), exitUsage, []string{"1022"}}.fails(t, bin)
			return
		}
		mistake{"", host("--advanced.handler-cpus", strconv.Itoa(other)), exitUsage,
			[]string{"mask", "taskset"}}.fails(t, "taskset", "-c", first, bin)
	})
	t.Run("without CAP_SYS_NICE", func(t *testing.T) {
		testenv.NeedRoot(t)
		testenv.NeedTools(t, "setpriv")
		mistake{"", host("--advanced.handler-priority", "latency"), exitPermission,
			[]string{"advanced.handler-priority", "CAP_SYS_NICE"}}.fails(t,
			"setpriv", "--bounding-set", "-sys_nice", bin)
	})
}
