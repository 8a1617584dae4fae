package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine is a guest, which may be running or have ended.
type machine struct {
	name    string
	address string // address on the cable
	cable   string // socket of the panel
	letter  byte   // the harness distinguishes cables by this letter
	dir     string // directory for the sockets

	agent  *rpc.Client
	qmp    *qmp
	mode   string // kvm or tcg
	booted time.Duration
	ready  bool // install has succeeded

	run  *exec.Cmd // the harness
	said *tail     // output of the harness
	done chan struct{}
}

// tail is a writer that keeps the last 16 KiB of its data.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b...)
	if extra := len(w.b) - 16<<10; extra > 0 {
		w.b = append(w.b[:0], w.b[extra:]...)
	}
	return len(b), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// checkout is the directory of the project, relative to this package.
const checkout = "../.."

// nodeProgram is the path of the agent's program for the guests, relative to the checkout.
const nodeProgram = "build/faults/node"

// installNode copies this test binary to nodeProgram, because a guest has no access to /tmp.
func installNode() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	path := filepath.Join(checkout, nodeProgram)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Write a new file and rename it, because a process may still run the old one.
	if err := os.WriteFile(path+".new", b, 0o755); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lifetime is the longest time in seconds that a machine may run. It ends machines if the tests
// hang.
const lifetime = "3000"

// boot starts the machine and returns when its agent answers.
func (m *machine) boot() (err error) {
	started := time.Now()
	listen := func(name string) (*net.UnixListener, error) {
		path := filepath.Join(m.dir, m.name+"."+name)
		_ = os.Remove(path) // socket of the previous machine
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, err
		}
		return l.(*net.UnixListener), l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	}
	agentSocket, err := listen("agent")
	if err != nil {
		return err
	}
	defer agentSocket.Close()
	qmpSocket, err := listen("qmp")
	if err != nil {
		return err
	}
	defer qmpSocket.Close()

	mode := os.Getenv("SPLITNIC_SOFTROCE")
	if mode != "kvm" && mode != "tcg" {
		mode = "guest" // two machines need two kernels
	}
	m.run = exec.Command("ci/softroce/run", "--mode", mode, "--smp", "1", "--mem", "1G", "--timeout", lifetime,
		"--cable", fmt.Sprintf("%s,%c", m.cable, m.letter), "--agent", agentSocket.Addr().String(),
		"--qmp", qmpSocket.Addr().String(),
		"ci/softroce/node.sh", nodeProgram)
	m.run.Dir = checkout
	// The variable is set only in the harness's copy of the environment, because this process is
	// not an agent.
	m.run.Env = append(os.Environ(), nodeVariable+"=1")
	m.said, m.done = &tail{}, make(chan struct{})
	m.run.Stdout, m.run.Stderr = m.said, m.said
	// If this process is killed, its machines are terminated too.
	m.run.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := m.run.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", m.name, err)
	}
	go func() {
		defer close(m.done)
		_ = m.run.Wait() // ProcessState has the status
	}()
	defer func() {
		if err != nil {
			ended(m.done, 10*time.Second) // if the harness ends by itself, its output has the reason
			m.kill()
			err = fmt.Errorf("booting %s: %w; the harness said:\n%s", m.name, err, m.said)
		}
	}()
	qmpConn, err := m.accept(qmpSocket)
	if err != nil {
		return err
	}
	agentConn, err := m.accept(agentSocket)
	if err != nil {
		return err
	}
	if m.qmp, err = newQMP(qmpConn); err != nil {
		return err
	}
	m.agent = rpc.NewClient(agentConn)
	var hello Hello
	if err := m.call("Hello", struct{}{}, &hello); err != nil {
		return err
	}
	m.mode, m.booted, m.ready = hello.Mode, time.Since(started), false
	return nil
}

// accept waits for qemu to connect, or for the end of the harness.
func (m *machine) accept(l *net.UnixListener) (net.Conn, error) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-m.done:
			l.SetDeadline(time.Now())
		case <-over:
		}
	}()
	return l.Accept()
}

// call calls the machine's agent. It returns an error if the machine ends, or after three times
// patience.
func (m *machine) call(method string, args, reply any) error {
	call := m.agent.Go("Agent."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("%s: %s: %w", m.name, method, call.Error)
		}
		return nil
	case <-m.done:
		return fmt.Errorf("%s: %s: the machine is gone; the harness said:\n%s", m.name, method, m.said)
	case <-time.After(3 * patience):
		return fmt.Errorf("%s: %s: no answer after %v", m.name, method, 3*patience)
	}
}

// running reports whether the machine is running.
func (m *machine) running() bool { return m.done != nil && !ended(m.done, 0) }

// kill ends the machine like a loss of power.
func (m *machine) kill() {
	_ = m.run.Process.Kill() // qemu dies with the harness; Kill fails if the harness has ended
	<-m.done
	m.hangUp()
}

func (m *machine) hangUp() {
	if m.agent != nil {
		m.agent.Close()
	}
	if m.qmp != nil {
		m.qmp.c.Close()
	}
}

// shut shuts the machine down. It returns an error if the harness fails, for example because of
// complaints of the machine's kernel.
func (m *machine) shut() error {
	if !m.running() {
		return nil
	}
	m.agent.Close() // which ends the agent, and with it the harness's script
	if !ended(m.done, patience) {
		m.kill()
		return fmt.Errorf("%s does not end", m.name)
	}
	m.hangUp()
	if status := m.run.ProcessState.ExitCode(); status != 0 {
		return fmt.Errorf("%s: ci/softroce/run ended with status %d:\n%s", m.name, status, m.said)
	}
	return nil
}

// must calls the machine's agent and returns the reply. The test fails if the call fails.
func must[R any](t testing.TB, m *machine, method string, args any) R {
	t.Helper()
	var reply R
	if err := m.call(method, args, &reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// try runs a program on the machine and returns how it ended.
func (m *machine) try(t testing.TB, args ...string) Result {
	t.Helper()
	return must[Result](t, m, "Run", Command{Args: args})
}

// sh runs a shell script on the machine and returns its output. The test fails if the script fails.
func (m *machine) sh(t testing.TB, script string) string {
	t.Helper()
	r := must[Result](t, m, "Run", Command{Args: []string{"bash", "-e"}, Input: script})
	if r.Status != 0 {
		t.Fatalf("%s: this script ended with status %d:\n%s\nand printed:\n%s", m.name, r.Status, script, r.Output)
	}
	return r.Output
}

// in runs a program in a network namespace of the machine.
func (m *machine) in(t testing.TB, ns string, args ...string) Result {
	t.Helper()
	return must[Result](t, m, "Run", Command{NS: ns, Args: args})
}

// control executes a QMP command in the machine's qemu.
func (m *machine) control(t testing.TB, command string, arguments map[string]any) {
	t.Helper()
	if err := m.qmp.do(command, arguments); err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
}

// plug connects or disconnects the machine's end of the cable.
func (m *machine) plug(t testing.TB, in bool) {
	t.Helper()
	m.control(t, "set_link", map[string]any{"name": "cable", "up": in})
}

// pause stops the machine's processors, and resume lets them run again.
func (m *machine) pause(t testing.TB)  { t.Helper(); m.control(t, "stop", nil) }
func (m *machine) resume(t testing.TB) { t.Helper(); m.control(t, "cont", nil) }

// nodeVariable is the environment variable that is set if the test binary is an agent.
const nodeVariable = "SPLITNIC_FAULTS_NODE"

// stdio is the serial port, which node.sh leaves open. Until the kernel learns that the other end
// of the port is connected, reads return io.EOF as if the other end had hung up.
type stdio struct{ heard bool }

func (s *stdio) Read(b []byte) (n int, err error) {
	for until := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		n, err = os.Stdin.Read(b)
		if s.heard = s.heard || n > 0; s.heard || !errors.Is(err, io.EOF) || time.Now().After(until) {
			return n, err
		}
	}
}

func (s *stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (s *stdio) Close() error                { return nil }

// pipe returns a client that is connected to an agent in this process, for the agent's own test.
func pipe(t *testing.T) (*rpc.Client, *agentEnd) {
	t.Helper()
	ours, theirs := net.Pipe()
	end := &agentEnd{done: make(chan error, 1)}
	go func() { end.done <- serveAgent(theirs) }()
	return rpc.NewClient(ours), end
}

// agentEnd is an agent in this process.
type agentEnd struct{ done chan error }

// TestAgent tests the methods of the agent, which runs in this process.
func TestAgent(t *testing.T) {
	client, end := pipe(t)
	call := func(method string, args, reply any) error { return client.Call("Agent."+method, args, reply) }
	dir := t.TempDir()
	t.Run("run", func(t *testing.T) {
		var r Result
		if err := call("Run", Command{Args: []string{"sh"}, Input: "echo out; echo err >&2; exit 3"}, &r); err != nil {
			t.Fatal(err)
		}
		if r.Status != 3 || r.Output != "out\nerr\n" {
			t.Errorf("%+v", r)
		}
		if err := call("Run", Command{Args: []string{"no-such-program-anywhere"}}, &r); err == nil {
			t.Error("a program that does not exist could be run")
		}
	})
	t.Run("background", func(t *testing.T) {
		log := filepath.Join(dir, "log")
		var id int
		if err := call("Start", Command{Args: []string{"sh", "-c", "echo here; exec cat"}, Log: log}, &id); err != nil {
			t.Fatal(err)
		}
		var r Result
		if err := call("Wait", Wait{ID: id, Timeout: patience}, &r); err != nil || r.Running || r.Status != 0 {
			t.Errorf("%+v, %v", r, err) // the program ends because its input is empty
		}
		if err := call("Signal", Signal{ID: id, Signal: unix.SIGTERM}, &struct{}{}); err != nil {
			t.Error(err)
		}
		var text []byte
		if err := call("ReadFile", log, &text); err != nil || string(text) != "here\n" {
			t.Errorf("%q, %v", text, err)
		}
		if err := call("Wait", Wait{ID: id + 1}, &r); err == nil {
			t.Error("a program that was not started could be waited for")
		}
	})
	t.Run("signal", func(t *testing.T) {
		var id int
		if err := call("Start", Command{Args: []string{"sleep", "1000"}, Log: filepath.Join(dir, "sleep")}, &id); err != nil {
			t.Fatal(err)
		}
		var r Result
		if err := call("Wait", Wait{ID: id}, &r); err != nil || !r.Running {
			t.Errorf("%+v, %v", r, err)
		}
		if err := call("Signal", Signal{ID: id, Signal: unix.SIGKILL}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		var end Result
		if err := call("Wait", Wait{ID: id, Timeout: patience}, &end); err != nil || end.Running || end.Status != -1 {
			t.Errorf("%+v, %v", end, err)
		}
	})
	t.Run("files", func(t *testing.T) {
		path := filepath.Join(dir, "file")
		if err := call("WriteFile", File{Path: path, Data: []byte("text"), Mode: 0o600}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
		var got []byte
		if err := call("ReadFile", path, &got); err != nil || string(got) != "text" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("stream", func(t *testing.T) {
		var accepted, opened Flowing
		if err := call("Accept", Flow{Addr: "127.0.0.1:0"}, &accepted); err != nil {
			t.Fatal(err)
		}
		if err := call("Open", Flow{Addr: accepted.Addr}, &opened); err != nil {
			t.Fatal(err)
		}
		var mine, theirs Ends
		err := errors.Join(call("Finish", opened.ID, &mine), call("Finish", accepted.ID, &theirs))
		if err != nil || mine.Error != "" || theirs.Error != "" || mine.Sent == 0 ||
			mine.Sent != theirs.Received || mine.Received != theirs.Sent || !mine.Ended || !theirs.Ended {
			t.Errorf("%+v, %+v, %v", mine, theirs, err)
		}
	})
	t.Run("stream with other contents", func(t *testing.T) {
		var accepted Flowing
		if err := call("Accept", Flow{Addr: "127.0.0.1:0"}, &accepted); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", accepted.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		var theirs Ends
		if err := call("Finish", accepted.ID, &theirs); err != nil ||
			!strings.Contains(theirs.Error, "is not what was sent") {
			t.Errorf("%+v, %v", theirs, err)
		}
	})
	client.Close()
	if err := <-end.done; err != nil {
		t.Error(err)
	}
}

// TestSequence tests the counts of a receiver of numbered datagrams: received, doubled, wrong and
// late ones.
func TestSequence(t *testing.T) {
	s := &sequence{seen: map[uint64]bool{}}
	room := make([]byte, 2048)
	for _, n := range []uint64{0, 1, 3, 2, 3, 9} {
		s.arrived(bytes.Clone(datagram(make([]byte, 2048), n)), room)
	}
	changed := bytes.Clone(datagram(make([]byte, 2048), 4))
	changed[len(changed)-1] ^= 1
	s.arrived(changed, room)
	s.arrived(datagram(make([]byte, 2048), 7)[:20], room)
	s.arrived(nil, room)
	if want := (Counts{Received: 5, Doubled: 1, Wrong: 3, Late: 1}); s.counts != want {
		t.Errorf("%+v, want %+v", s.counts, want)
	}
}
