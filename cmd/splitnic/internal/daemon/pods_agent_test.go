//go:build pods

package daemon

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
)

// managedAgent is an agent, with its I/O unit, in a separate process. The test is the service
// manager: it restarts the process, and keeps file descriptors for it as systemd does. The
// process runs the same test again, which therefore has to call beAgent first.
type managedAgent struct {
	t       testing.TB
	dir     string
	lan     string // namespace of the bridge
	sock    string
	manager *net.UnixConn
	cmd     *exec.Cmd
	alive   io.Closer // standard input, whose end ends the process if the test dies

	mu   sync.Mutex // guards held
	held map[string]*os.File
}

// agentVar is the environment variable that makes a process an agent. It has the directory and
// the namespace of the LAN.
const agentVar = "SPLITNIC_TEST_AGENT"

// beAgent runs the agent if this process is to be one. It returns true at the agent's end, and
// false at once in other processes.
func beAgent(t *testing.T) bool {
	t.Helper()
	dir, lan, is := strings.Cut(os.Getenv(agentVar), ":")
	if !is {
		return false
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	store, err := openStore()
	if err != nil {
		t.Fatal(err)
	}
	newAgentAt(t, dir, lan, store)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	<-ctx.Done()
	return true
}

// newManagedAgent starts an agent.
func newManagedAgent(t testing.TB) *managedAgent {
	t.Helper()
	testenv.NeedTUN(t)
	// The path of a socket has to be short: about a hundred characters.
	dir, err := os.MkdirTemp("", "splitnic-pods-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &managedAgent{
		t: t, dir: dir, lan: agentLAN(t), sock: filepath.Join(dir, "agent.sock"), held: map[string]*os.File{},
	}
	at := &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "notify")}
	if a.manager, err = net.ListenUnixgram("unixgram", at); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for a.notified() == nil {
		}
	}()
	t.Cleanup(func() {
		a.manager.Close()
		<-done
		for _, f := range a.held {
			f.Close()
		}
	})
	a.start()
	t.Cleanup(func() { a.end(unix.SIGTERM) })
	return a
}

// notified receives and handles one notification (sd_notify(3)).
func (a *managedAgent) notified() error {
	buf, oob := make([]byte, 4096), make([]byte, 4096)
	n, k, _, _, err := a.manager.ReadMsgUnix(buf, oob)
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(buf[:n])) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[name] = value
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if fields["FDSTOREREMOVE"] != "" {
		if f := a.held[fields["FDNAME"]]; f != nil {
			delete(a.held, fields["FDNAME"])
			return f.Close()
		}
	}
	messages, err := unix.ParseSocketControlMessage(oob[:k])
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			a.held[fields["FDNAME"]] = os.NewFile(uintptr(fd), fields["FDNAME"])
		}
	}
	return err
}

// stored returns the names of the descriptors that the manager keeps, sorted.
func (a *managedAgent) stored() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.held))
}

// start starts the process and waits until the agent answers.
func (a *managedAgent) start() {
	a.t.Helper()
	if err := a.exec(); err != nil {
		a.t.Fatal(err)
	}
	testenv.Eventually(a.t, func() bool { _, err := statussock.Read(a.t.Context(), a.sock); return err == nil },
		"an agent that answers")
}

// exec starts the process with the descriptors that the manager keeps. They do not change in the
// meantime.
func (a *managedAgent) exec() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := slices.Sorted(maps.Keys(a.held))
	// $$ is the number of the process: LISTEN_PID has to be equal to it.
	a.cmd = exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0], "-test.run", "^"+a.t.Name()+"$")
	a.cmd.Env = append(os.Environ(), agentVar+"="+a.dir+":"+a.lan, "NOTIFY_SOCKET="+a.manager.LocalAddr().String(),
		fmt.Sprint("LISTEN_FDS=", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	for _, name := range names {
		a.cmd.ExtraFiles = append(a.cmd.ExtraFiles, a.held[name])
	}
	a.cmd.Stdout, a.cmd.Stderr = os.Stderr, os.Stderr
	if a.alive, err = a.cmd.StdinPipe(); err != nil {
		return err
	}
	return a.cmd.Start()
}

// end ends the process with a signal.
func (a *managedAgent) end(by unix.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(by); err != nil {
		a.t.Error(err)
	}
	if err := a.cmd.Wait(); err != nil && by != unix.SIGKILL {
		a.t.Errorf("the agent: %v", err)
	}
}

// restart ends the process and starts the next one.
func (a *managedAgent) restart(by unix.Signal) {
	a.t.Helper()
	a.end(by)
	a.start()
}

// cards returns the cards of the agent.
func (a *managedAgent) cards(t testing.TB) []cards.Info {
	t.Helper()
	l, _, err := cards.Client(a.sock).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Cards
}

// connected waits until n cards have a session and carrier.
func (a *managedAgent) connected(t testing.TB, n int) {
	t.Helper()
	is := 0
	deadline := time.Now().Add(2 * time.Minute) // long, for the race detector
	for ; ; time.Sleep(20 * time.Millisecond) {
		is = 0
		for _, c := range a.cards(t) {
			if c.Status.State == cards.Connected && c.Status.Carrier {
				is++
			}
		}
		if is == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d cards are connected", is, n)
		}
	}
}

// nothingLeft waits until nothing is left of the containers. Some of it is removed only when the
// agent notices that a container does not exist any more.
func (a *managedAgent) nothingLeft(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for left := a.left(t); len(left) > 0; left = a.left(t) {
		if time.Now().After(deadline) {
			t.Errorf("this is left:\n%s", strings.Join(left, "\n"))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// left returns the cards and everything that belongs to cards.
func (a *managedAgent) left(t testing.TB) (left []string) {
	t.Helper()
	for _, c := range a.cards(t) {
		left = append(left, fmt.Sprintf("card %s in %s, %s %s", c.Spec.Name, c.Spec.NetNS, c.Status.State, c.Status.Error))
	}
	for _, pattern := range []string{"host-*", "state/cards/*"} {
		files, err := filepath.Glob(filepath.Join(a.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, files...)
	}
	for _, link := range testenv.Links(t, a.lan) {
		if link != "lo" && link != "br0" {
			left = append(left, "the I/O unit's interface "+link)
		}
	}
	return append(left, a.stored()...)
}

// leases returns the addresses that the IPAM plugin has given.
func (a *managedAgent) leases(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.dir, "ipam/*/10.*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// connection makes a TCP connection from a network namespace to the LAN. speaks sends a word in
// both directions and expects it to arrive.
func (a *managedAgent) connection(t testing.TB, ns string) (speaks func()) {
	t.Helper()
	ln := testenv.ListenTCP(t, a.lan, "10.78.0.1")
	var from net.Conn
	err := netns.Do(ns, func() (err error) {
		d := net.Dialer{Timeout: time.Minute}
		from, err = d.DialContext(t.Context(), "tcp", ln.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	to, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	return func() {
		t.Helper()
		for _, c := range [][2]net.Conn{{from, to}, {to, from}} {
			const word = "still there"
			got := make([]byte, len(word))
			err := c[1].SetReadDeadline(time.Now().Add(time.Minute))
			if err == nil {
				_, err = c[0].Write([]byte(word))
			}
			if err == nil {
				_, err = c[1].Read(got)
			}
			if err != nil || string(got) != word {
				t.Errorf("a connection between container and LAN: %q, %v", got, err)
			}
		}
	}
}
