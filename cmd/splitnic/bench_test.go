package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// benchParse parses a command line as benchKindCommand does.
func benchParse(kind bench.Kind, line string) (benchConfig, error) {
	f := &benchFlags{benchConfig: benchConfig{kind: kind}}
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	f.add(flags)
	if err := flags.Parse(strings.Fields(line)); err != nil {
		return benchConfig{}, err
	}
	f.addr = strings.Join(flags.Args(), " ")
	return f.config(flags)
}

// TestPollProcs expects one P for each worker, at most one for each processor. With a P more, a
// thread would wake at each yield of a worker, which slows a polled round trip.
func TestPollProcs(t *testing.T) {
	for _, c := range []struct{ queues, cpus, want int }{{1, 1, 1}, {1, 2, 2}, {1, 32, 2}, {4, 2, 2}, {4, 32, 8}} {
		if got := pollProcs(c.queues, c.cpus); got != c.want {
			t.Errorf("%d queues on %d processors: %d Ps, want %d", c.queues, c.cpus, got, c.want)
		}
	}
}

func TestBenchSpecs(t *testing.T) {
	bw := bench.Spec{Kind: bench.BW, Mode: protocol.ModeImm, Size: bench.MaxSize, Queues: 1, Iterations: 1000, WarmUp: 100}
	lat := bench.Spec{Kind: bench.Lat, Mode: protocol.ModeImm, Size: 64, Queues: 1, Iterations: 1000, WarmUp: 100,
		Poll: true}
	with := func(s bench.Spec, change func(*bench.Spec)) bench.Spec {
		change(&s)
		return s
	}
	for _, c := range []struct {
		kind bench.Kind
		line string
		want []bench.Spec
	}{
		{bench.BW, "", []bench.Spec{bw}},
		{bench.BW, "-D 10s -b -q 4 -l 8 -t 64 --poll --no-pack", []bench.Spec{with(bw, func(s *bench.Spec) {
			s.Iterations, s.Duration, s.WarmUp = 0, 10*time.Second, 1000
			s.Bidirectional, s.Queues, s.PostList, s.TxDepth, s.Poll, s.NoPack = true, 4, 8, 64, true, true
		})}},
		{bench.BW, "--mode imm,send -s 64,128 -n 50 --warm-up 0", []bench.Spec{
			with(bw, func(s *bench.Spec) { s.Size, s.Iterations, s.WarmUp = 64, 50, 0 }),
			with(bw, func(s *bench.Spec) { s.Size, s.Iterations, s.WarmUp = 128, 50, 0 }),
			with(bw, func(s *bench.Spec) { s.Size, s.Iterations, s.WarmUp, s.Mode = 64, 50, 0, protocol.ModeSend }),
			with(bw, func(s *bench.Spec) { s.Size, s.Iterations, s.WarmUp, s.Mode = 128, 50, 0, protocol.ModeSend }),
		}},
		{bench.Lat, "", []bench.Spec{lat}},
		{bench.Lat, "--event 10.0.0.1", []bench.Spec{with(lat, func(s *bench.Spec) { s.Poll = false })}},
		{bench.BW, "--encrypt", []bench.Spec{with(bw, func(s *bench.Spec) {
			s.Size, s.Cipher = 65519, seal.Ciphers()[0]
		})}},
		{bench.PPS, "-s 100", []bench.Spec{with(bw, func(s *bench.Spec) {
			s.Kind, s.Size, s.Iterations, s.WarmUp = bench.PPS, 100, 100000, 10000
		})}},
	} {
		f, err := benchParse(c.kind, c.line)
		if err != nil {
			t.Errorf("%s %s: %v", c.kind, c.line, err)
			continue
		}
		if diff := cmp.Diff(c.want, f.specs); diff != "" {
			t.Errorf("%s %s: %s", c.kind, c.line, diff)
		}
	}
	for line, want := range map[string]int{"": messaging.DefaultPackCopy, "--pack-copy 80": 80, "--pack-copy 0": -1} {
		if f, err := benchParse(bench.PPS, line); err != nil || f.packCopy != want {
			t.Errorf("%s: %d bytes, %v", line, f.packCopy, err)
		}
	}
	f, err := benchParse(bench.BW, "--all")
	if err != nil || len(f.specs) != 12 || f.specs[0].Size != 32 || f.specs[11].Size != bench.MaxSize {
		t.Errorf("--all: %+v, %v", f.specs, err)
	}
	for line, want := range map[string]int{"--listen :1": len(protocol.Modes()), "--listen :1 --mode send,imm": 2} {
		if f, err := benchParse(bench.BW, line); err != nil || len(f.modes) != want {
			t.Errorf("%s: modes %v, %v", line, f.modes, err)
		}
	}
}

func TestBenchMistakes(t *testing.T) {
	t.Setenv(secretVariable, "")
	for _, c := range []struct{ line, words string }{
		{"--listen :1 10.0.0.1", "--listen and 10.0.0.1"},
		{"--listen=", "address to listen on is missing"},
		{"--listen :1 --peer-device x", "--peer-device"},
		{"--peer-device x 10.0.0.1", "--peer-device"},
		{"--serve-forever", "--serve-forever"},
		{"--secret x", "two nodes"},
		{"--secret x --secret-file y 10.0.0.1", "--secret and --secret-file"},
		{"--poll --event", "--poll and --event"},
		{"--all -s 64", "--all and --size"},
		{"--timeout 0s", "--timeout 0s"},
		{"--listen :1 -s 64", "--size is a flag of the other node"},
		{"--listen :1 --encrypt", "--encrypt is a flag of the other node"},
		{"--encrypt -s 65535", "--size 65535"},
		{"--listen :1 --json", "--json is a flag of the other node"},
		{"--listen a:b:c", "--listen: address a:b:c"},
		{"a:b:c", "the other node: address a:b:c"},
		{"--mode imm,imm", "duplicate"},
		{"--mode x", "--mode"},
		{"-s 23", "--size 23"},
		{"--listen :1 --pack-copy 0", "--pack-copy is a flag of the other node"},
		{"-s 64,70000", "--size 70000"},
		{"-q 17", "--qp 17"},
		{"-n 0", "--iters 0"},
		{"-n 5 -D 1s", "--iters and --duration"},
		{"-D -1s", "--duration -1s"},
		{"-l 20 -t 21", "--tx-depth 21"},
	} {
		_, err := benchParse(bench.BW, c.line)
		if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", c.line, err, c.words)
		}
	}
	for _, line := range []string{"bench bw a b", "bench x", "bench lat -q 2", "bench bw --mode imm 10.0.0.1"} {
		root := rootCommand()
		root.SetArgs(strings.Fields(line))
		root.SetOut(t.Output())
		if err := root.ExecuteContext(t.Context()); exit.Status(err) != exit.Usage {
			t.Errorf("%s: status %d, %v", line, exit.Status(err), err)
		}
	}
}

// TestBenchDeviceAt looks up the device by the address to listen at.
func TestBenchDeviceAt(t *testing.T) {
	at := func(addr netip.Addr) ([]string, error) {
		switch addr.String() {
		case "10.0.0.1", "2001:db8::1":
			return []string{"mlx5_1"}, nil
		case "10.0.0.2":
			return []string{"mlx5_0", "mlx5_1"}, nil
		case "0.0.0.0", "::":
			return nil, errors.New("asked for the unspecified address")
		}
		return nil, nil
	}
	for listen, want := range map[string]string{
		"10.0.0.1": "mlx5_1", "10.0.0.1:7591": "mlx5_1", "[2001:db8::1]:7590": "mlx5_1",
		"127.0.0.1": "", ":7590": "", "0.0.0.0": "", "[::]:7590": "", "node1": "",
	} {
		if got, err := deviceAt(listen, at); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", listen, got, err, want)
		}
	}
	if got, err := deviceAt("10.0.0.2", at); exit.Status(err) != exit.Usage {
		t.Errorf("an address of two devices: %q, %v", got, err)
	}
}

func TestBenchSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from-the-file-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(secretVariable, "from-the-variable-0123456789")
	for _, c := range []struct {
		f    benchConfig
		want string
	}{
		{benchConfig{}, "from-the-variable-0123456789"},
		{benchConfig{secret: "from-the-flag-0123456789"}, "from-the-flag-0123456789"},
		{benchConfig{secretFile: file}, "from-the-file-0123456789"},
	} {
		s, given, err := c.f.readSecret()
		if err != nil || !given || s.Reveal() != c.want {
			t.Errorf("%q, given %t, %v; want %q", s.Reveal(), given, err, c.want)
		}
	}
	t.Setenv(secretVariable, "short")
	if _, _, err := (&benchConfig{}).readSecret(); exit.Status(err) != exit.Usage ||
		!strings.Contains(err.Error(), secretVariable) {
		t.Errorf("a short one: %v", err)
	}
	if _, _, err := (&benchConfig{secretFile: file + "x"}).readSecret(); exit.Status(err) != exit.Missing {
		t.Errorf("no file: %v", err)
	}
	t.Setenv(secretVariable, "")
	if _, given, err := (&benchConfig{}).readSecret(); given || err != nil {
		t.Errorf("none: %t, %v", given, err)
	}
}

func TestBenchPrint(t *testing.T) {
	// Bandwidth and rate are in the same columns as in the output of perftest, for scripts.
	fields := strings.Fields(benchRow(bench.Result{Name: bench.BW, Size: 64, Iterations: 10, PeakMiBPerSecond: 3.5,
		MiBPerSecond: 2.5, Mpps: 0.125}))
	if diff := cmp.Diff([]string{"64", "10", "3.50", "2.50", "0.125000"}, fields); diff != "" {
		t.Error(diff)
	}
	fields = strings.Fields(benchRow(bench.Result{Name: bench.Lat, Size: 64, Iterations: 10,
		Latency: &bench.Latency{Min: 1, Max: 2, Typical: 3, Average: 4, Stdev: 5, P99: 6, P999: 7}}))
	if diff := cmp.Diff([]string{"64", "10", "1.00", "2.00", "3.00", "4.00", "5.00", "6.00", "7.00"}, fields); diff != "" {
		t.Error(diff)
	}
	fields = strings.Fields(benchRow(bench.Result{Name: bench.PPS, Size: 64, Iterations: 10, Mpps: 1,
		TransfersPerSecond: 5e5, PostsPerSecond: 25e4, MiBPerSecond: 9}))
	if diff := cmp.Diff([]string{"64", "10", "1.000000", "0.500000", "0.250000", "9.00"}, fields); diff != "" {
		t.Error(diff)
	}
	var out strings.Builder
	p := &benchPrinter{out: &out, device: "rxe0", where: "to 10.0.0.1:7590", link: "Ethernet", mtu: 1024}
	for _, s := range []bench.Spec{
		{Kind: bench.BW, Mode: protocol.ModeImm, Queues: 2},
		{Kind: bench.BW, Mode: protocol.ModeImm, Queues: 2, Size: 1},
		{Kind: bench.BW, Mode: protocol.ModeSend, Queues: 2, Protection: messaging.ProtectWindow},
	} {
		if err := p.result(s, bench.Result{Protection: messaging.ProtectWindow,
			Cipher: map[bool]seal.Cipher{true: seal.AES128GCM}[s.Mode == protocol.ModeSend]}); err != nil {
			t.Error(err)
		}
	}
	for words, times := range map[string]int{
		"rxe0 to 10.0.0.1:7590": 2, "imm": 1, "1024[B]": 2, "#bytes": 2, "Ethernet": 2, ": window\n": 1,
		": none\n": 1, ": aes-128-gcm\n": 1,
		": window, the device's default\n": 1,
	} {
		if got := strings.Count(out.String(), words); got != times {
			t.Errorf("%q is there %d times, want %d:\n%s", words, got, times, &out)
		}
	}
}

func TestInvitation(t *testing.T) {
	text := invitation(bench.Lat, "rxe0", shortAddr("10.0.0.1", 7590), "abc")
	if !strings.Contains(text, "  "+secretVariable+"=abc splitnic bench lat 10.0.0.1\n") {
		t.Error(text)
	}
	if text := invitation(bench.BW, "rxe0", shortAddr("fe80::1", 5), ""); strings.Contains(text, secretVariable) ||
		!strings.Contains(text, "  splitnic bench bw [fe80::1]:5\n") {
		t.Error(text)
	}
}
