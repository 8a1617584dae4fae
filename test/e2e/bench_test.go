package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchServer is a running `splitnic bench … --listen`, on the RDMA device that has the address.
type benchServer struct {
	t       *testing.T
	bin     string
	cmd     *exec.Cmd
	command string // the command that the server prints for the other node
	stdout  *bufio.Reader
	stderr  bytes.Buffer
}

func listenBench(t *testing.T, bin, kind string, args ...string) *benchServer {
	t.Helper()
	s := &benchServer{t: t, bin: bin}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	s.cmd = exec.CommandContext(ctx, bin, append([]string{"bench", kind, "--listen", unitAddress}, args...)...)
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = s.cmd.Wait() // ends has reported the error already
	})
	s.stdout = bufio.NewReader(out)
	for said := ""; s.command == ""; {
		line, err := s.stdout.ReadString('\n')
		if err != nil {
			cancel()
			_ = s.cmd.Wait()
			t.Fatalf("the server shows no command: %v\n%s", err, &s.stderr)
		}
		if said += line; strings.Contains(line, "splitnic bench") {
			s.command = strings.TrimSpace(line)
		}
		if s.command != "" && !strings.Contains(said, "Device "+unitDevice+" is waiting") {
			t.Errorf("listening at %s is on another device than %s:\n%s", unitAddress, unitDevice, said)
		}
	}
	return s
}

// other returns the command that the server prints, with more flags, for the other device. The
// caller runs it.
func (s *benchServer) other(args ...string) *exec.Cmd {
	command := strings.Replace(s.command, " splitnic ", " exec "+s.bin+" ", 1) + " --device " + hostDevice + " " +
		strings.Join(args, " ")
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*patience)
	s.t.Cleanup(cancel)
	return exec.CommandContext(ctx, "sh", "-c", command)
}

// measure runs the command of other, which has to succeed, and returns its output.
func (s *benchServer) measure(args ...string) string {
	s.t.Helper()
	cmd := s.other(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%q: %v\n%s\nthe server says\n%s", args, err, &stderr, &s.stderr)
	}
	return string(out)
}

// ends waits until the server has ended, and returns its exit status and the rest of its output.
func (s *benchServer) ends() (status int, out string) {
	s.t.Helper()
	var b strings.Builder
	_, _ = s.stdout.WriteTo(&b) // until the process ends
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode(), b.String()
}

// rows returns the rows of numbers in a table of `splitnic bench`.
func rows(t *testing.T, out string) [][]float64 {
	t.Helper()
	var all [][]float64
	for line := range strings.Lines(out) {
		var row []float64
		for _, f := range strings.Fields(line) {
			x, err := strconv.ParseFloat(f, 64)
			if err != nil {
				row = nil
				break
			}
			row = append(row, x)
		}
		if row != nil {
			all = append(all, row)
		}
	}
	return all
}

// TestRDMABench runs each measurement with a server process and a client process, and with one
// process for both ends, and checks the printed results.
func TestRDMABench(t *testing.T) {
	bin := needFabric(t)
	t.Run("bw", func(t *testing.T) {
		s := listenBench(t, bin, "bw")
		out := s.measure("--mode imm,send --size 64,65535 --iters 100 --qp 2")
		got := rows(t, out)
		if len(got) != 4 || strings.Count(out, "#bytes") != 2 {
			t.Fatalf("want four rows of two modes:\n%s", out)
		}
		for i, row := range got {
			if len(row) != 5 || row[0] != []float64{64, 65535}[i%2] || row[1] != 100 || row[2] < row[3] || row[3] <= 0 ||
				row[4] <= 0 {
				t.Errorf("row %v", row)
			}
		}
		if status, said := s.ends(); status != 0 || strings.Count(said, "100 messages received") != 4 {
			t.Errorf("the server ended with %d and said\n%s%s", status, said, &s.stderr)
		}
	})
	t.Run("bidirectional", func(t *testing.T) {
		s := listenBench(t, bin, "bw")
		var r struct {
			Iterations    int
			Bidirectional bool
			Form, Device  string
			MTU           int
			Mib           float64 `json:"mib_per_second"`
		}
		if err := json.Unmarshal([]byte(s.measure("-b -s 9000 -n 60 --mode indicate --json")), &r); err != nil {
			t.Fatal(err)
		}
		if r.Iterations != 120 || !r.Bidirectional || r.Form != "two-node" || r.Device != hostDevice || r.MTU < 256 ||
			r.Mib <= 0 {
			t.Errorf("%+v", r)
		}
		if status, _ := s.ends(); status != 0 {
			t.Errorf("the server ended with %d: %s", status, &s.stderr)
		}
	})
	for _, how := range []string{"--event", "--poll"} {
		t.Run("lat "+how, func(t *testing.T) {
			s := listenBench(t, bin, "lat")
			got := rows(t, s.measure("--iters 50", how))
			if len(got) != 1 || len(got[0]) != 9 {
				t.Fatalf("%v", got)
			}
			row := got[0]
			low, high, typical, average := row[2], row[3], row[4], row[5]
			if row[0] != 64 || row[1] != 50 || low <= 0 || low > typical || typical > row[7]+0.01 || average < low ||
				average > high {
				t.Errorf("%v", row)
			}
			if status, said := s.ends(); status != 0 || !strings.Contains(said, "55 messages echoed") {
				t.Errorf("the server ended with %d and said\n%s%s", status, said, &s.stderr)
			}
		})
	}
	t.Run("pps", func(t *testing.T) {
		s := listenBench(t, bin, "pps")
		got := rows(t, s.measure("--duration 1s"))
		if len(got) != 1 || len(got[0]) != 6 || got[0][0] != 64 || got[0][2] <= 0 || got[0][3] > got[0][2] ||
			got[0][4] > got[0][3] {
			t.Errorf("%v", got)
		}
		if status, _ := s.ends(); status != 0 {
			t.Errorf("the server ended with %d: %s", status, &s.stderr)
		}
	})
	t.Run("one process", func(t *testing.T) {
		for _, kind := range []string{"bw", "lat", "pps"} {
			out := run(t, bin, "bench", kind, "--device", hostDevice, "--peer-device", unitDevice, "--iters", "100", "--mode",
				"imm,indicate,send,send-uc")
			if got := rows(t, out); len(got) != 4 {
				t.Errorf("%s:\n%s", kind, out)
			}
		}
	})
}

// TestRDMABenchFails kills and interrupts either end, and connects clients that the server has to
// refuse. Each failure has to be reported, and the server has to be usable afterwards.
func TestRDMABenchFails(t *testing.T) {
	bin := needFabric(t)
	fails := func(t *testing.T, cmd *exec.Cmd, status int, words ...string) {
		t.Helper()
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		_ = cmd.Run() // the exit status is checked
		checkFailure(t, cmd.ProcessState.ExitCode(), stderr.String(), status, words...)
	}
	s := listenBench(t, bin, "bw", "--serve-forever")
	_, address, _ := strings.Cut(s.command, "bench bw ")
	t.Run("stranger", func(t *testing.T) {
		fails(t, exec.Command(bin, "bench", "bw", "--device", hostDevice, "--secret", "the-secret-of-somebody-else", address),
			exitKeys, "secret")
	})
	t.Run("other kind", func(t *testing.T) {
		cmd := s.other("--iters 5")
		cmd.Args[2] = strings.Replace(cmd.Args[2], "bench bw", "bench lat", 1)
		fails(t, cmd, exitFailure, "bench bw", "not lat")
	})
	t.Run("port in use", func(t *testing.T) {
		fails(t, exec.Command(bin, "bench", "bw", "--device", hostDevice, "--listen", unitAddress), exitInUse, "--listen")
	})
	t.Run("client is killed", func(*testing.T) {
		c := s.begin()
		_ = c.cmd.Process.Kill()
		c.ends()
		s.measure("--iters 10") // by a new client
	})
	t.Run("client is interrupted", func(t *testing.T) {
		c := s.begin()
		fails(t, s.other("--iters 5"), exitFailure, "busy with another run")
		_ = c.cmd.Process.Signal(os.Interrupt)
		status, why := c.ends()
		checkFailure(t, status, why, exitFailure, "interrupted")
		s.measure("--iters 10")
	})
	t.Run("server is killed", func(t *testing.T) {
		c := s.begin()
		killed := time.Now()
		_ = s.cmd.Process.Kill()
		status, why := c.ends()
		if took := time.Since(killed); !inTime(t, bin, took, 2*time.Second) {
			t.Errorf("noticed after %v", took)
		}
		checkFailure(t, status, why, exitFailure, unitAddress, "is gone")
	})
	t.Run("server is interrupted", func(t *testing.T) {
		for flag, want := range map[string]int{"--serve-forever": 0, "--serve-forever=false": exitFailure} {
			s := listenBench(t, bin, "lat", flag)
			if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if status, _ := s.ends(); status != want {
				t.Errorf("%s: status %d, want %d: %s", flag, status, want, &s.stderr)
			}
		}
	})
}

// benchClient is a process of `splitnic bench` during a measurement.
type benchClient struct {
	cmd    *exec.Cmd
	stderr *bufio.Reader
}

// begin starts a long measurement and waits until it makes progress. The caller has to end it.
func (s *benchServer) begin() *benchClient {
	s.t.Helper()
	c := &benchClient{cmd: s.other("--duration 10m --progress")}
	out, err := c.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c.stderr = bufio.NewReader(out)
	if line, err := c.stderr.ReadString('\n'); err != nil || !strings.Contains(line, "MiB/s") {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		s.t.Fatalf("no progress: %q, %v", line, err)
	}
	return c
}

// ends waits until the client has ended, and returns its exit status and its error output.
func (c *benchClient) ends() (status int, why string) {
	var b strings.Builder
	for {
		line, err := c.stderr.ReadString('\n')
		if !strings.Contains(line, "MiB/s") {
			b.WriteString(line)
		}
		if err != nil {
			break
		}
	}
	_ = c.cmd.Wait() // the exit status is returned
	return c.cmd.ProcessState.ExitCode(), b.String()
}
