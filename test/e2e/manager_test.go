package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// manager is a service manager for one service. It stores the file descriptors that the service's
// processes send, and starts each process with the stored ones (sd_notify(3), sd_listen_fds(3)).
type manager struct {
	t    testing.TB
	conn *net.UnixConn
	done chan struct{}

	mu    sync.Mutex
	store []stored
	ready int
}

// stored is a file descriptor in the store.
type stored struct {
	name string
	file *os.File
}

// newManager makes a manager with an empty store. The store is emptied when the test ends.
func newManager(t testing.TB) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, conn: conn, done: make(chan struct{})}
	go m.receive()
	t.Cleanup(func() {
		conn.Close()
		<-m.done
		m.drop()
	})
	return m
}

// receive handles notifications until the socket is closed.
func (m *manager) receive() {
	defer close(m.done)
	buf, oob := make([]byte, 4096), make([]byte, 4096)
	for {
		n, k, _, _, err := m.conn.ReadMsgUnix(buf, oob)
		if err != nil {
			return
		}
		if err := m.notified(string(buf[:n]), oob[:k]); err != nil {
			m.t.Errorf("a notification that no service manager understands: %q: %v", buf[:n], err)
		}
	}
}

// notified handles one notification.
func (m *manager) notified(state string, oob []byte) error {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for _, msg := range messages {
		rights, err := unix.ParseUnixRights(&msg)
		if err != nil {
			return err
		}
		fds = append(fds, rights...)
	}
	said := map[string]string{}
	for line := range strings.Lines(state) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		said[key] = value
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if said["READY"] == "1" {
		m.ready++
	}
	name := said["FDNAME"]
	switch {
	case said["FDSTORE"] == "1":
		if said["FDPOLL"] != "0" || name == "" || len(fds) == 0 {
			return fmt.Errorf("%d descriptors", len(fds))
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			m.store = append(m.store, stored{name, os.NewFile(uintptr(fd), name)})
		}
	case said["FDSTOREREMOVE"] == "1":
		m.store = slices.DeleteFunc(m.store, func(s stored) bool {
			if s.name == name {
				s.file.Close()
			}
			return s.name == name
		})
	case len(fds) > 0:
		return fmt.Errorf("%d descriptors for nothing", len(fds))
	}
	return nil
}

// drop empties the store, as for a service that is stopped.
func (m *manager) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.store {
		s.file.Close()
	}
	m.store = nil
}

// names returns the sorted names of the descriptors in the store.
func (m *manager) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, s := range m.store {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// readies returns the number of notifications that a process is ready.
func (m *manager) readies() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready
}

// prepare makes cmd a process of the service. A shell sets LISTEN_PID to the PID of the process.
func (m *manager) prepare(cmd *exec.Cmd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	env := []string{"NOTIFY_SOCKET=" + m.conn.LocalAddr().String()}
	if len(m.store) > 0 {
		var names []string
		for _, s := range m.store {
			names = append(names, s.name)
			cmd.ExtraFiles = append(cmd.ExtraFiles, s.file)
		}
		env = append(env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	cmd.Env = append(os.Environ(), env...)
	cmd.Path = "/bin/sh"
	cmd.Args = append([]string{"sh", "-c", `export LISTEN_PID=$$; exec "$0" "$@"`}, cmd.Args...)
}
