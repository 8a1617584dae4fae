package daemon

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// pipeEnd returns one end of a pipe and its inode number.
func pipeEnd(t *testing.T) (fd int, inode uint64) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fd, err = unix.Dup(int(r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd, inodeOf(t, fd)
}

func inodeOf(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestStoreSends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("LISTEN_PID", "1") // the number of another process
	t.Setenv("LISTEN_FDS", "1")
	s, err := openStore()
	if err != nil || !s.there() || len(s.held) != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	fd, inode := pipeEnd(t)
	defer unix.Close(fd)
	if err := s.putQueue("sn0", 3, fd); err != nil {
		t.Fatal(err)
	}
	buf, oob := make([]byte, 1024), make([]byte, 1024)
	n, k, _, _, err := manager.ReadMsgUnix(buf, oob)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buf[:n]); got != "FDSTORE=1\nFDNAME=sn0/3\nFDPOLL=0" {
		t.Errorf("the manager is told %q", got)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 || inodeOf(t, fds[0]) != inode {
		t.Errorf("the manager got descriptors %v, %v", fds, err)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err := s.removeQueue("sn0", 3); err != nil {
		t.Fatal(err)
	}
	if n, _, _, _, err = manager.ReadMsgUnix(buf, oob); err != nil || string(buf[:n]) != "FDSTOREREMOVE=1\nFDNAME=sn0/3" {
		t.Errorf("the manager is told %q, %v", buf[:n], err)
	}
	if err := s.putQueue("sn\u00e9", 0, fd); err == nil {
		t.Error("a name that no store takes was sent")
	}
	manager.Close()
	if err := s.putQueue("sn0", 0, fd); err == nil {
		t.Error("no error without a manager")
	}
}

func TestStoreReceives(t *testing.T) {
	for name, env := range map[string][3]string{
		"none":           {"", "", ""},
		"another's":      {"1", "1", "sn0/0"},
		"none, but ours": {strconv.Itoa(os.Getpid()), "", ""},
	} {
		for i, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
			t.Setenv(v, env[i])
		}
		s, err := openStore()
		if err != nil || s.takeQueues("sn0") != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if os.Getenv("LISTEN_FDS") != "" {
			t.Errorf("%s: child processes would take the descriptors for theirs", name)
		}
	}
	s := &fdStore{held: map[string]int{}}
	for _, bad := range [][2]string{{"two", "a:b"}, {"-1", ""}, {"2", "sn0/0"}, {"1", "sn0/0:sn0/1"}} {
		if err := s.receive(bad[0], bad[1]); err == nil || len(s.held) != 0 {
			t.Errorf("%q: %v, %v", bad, err, s.held)
		}
	}
}

func TestStoreTakes(t *testing.T) {
	s := &fdStore{held: map[string]int{"sn0/0": 10, "sn0/1": 11, "sn0/3": 13, "sn1/0": 20}}
	if got := s.takeQueues("sn0"); !slices.Equal(got, []int{10, 11}) {
		t.Errorf("%v", got)
	}
	if got := s.takeQueues("sn0"); got != nil {
		t.Errorf("twice: %v", got)
	}
	if len(s.held) != 2 {
		t.Errorf("left: %v", s.held)
	}
}

// TestStoreForgets removes the file descriptors of a card that could not be taken over from the
// store of the service manager. It expects those of other cards to stay.
func TestStoreForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	s := &fdStore{socket: path, held: map[string]int{}}
	fd, _ := pipeEnd(t)
	defer unix.Close(fd)
	heard := func() string {
		t.Helper()
		buf := make([]byte, 1024)
		if err := manager.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := manager.Read(buf)
		if err != nil {
			return err.Error()
		}
		return string(buf[:n])
	}
	for _, card := range []string{"a", "ab", "b"} {
		if err := s.putQueue(card, 0, fd); err != nil {
			t.Fatal(err)
		}
		heard()
	}
	if err := s.forget("a"); err != nil {
		t.Error(err)
	}
	if got := heard(); got != "FDSTOREREMOVE=1\nFDNAME=a/0" {
		t.Errorf("the manager is told %q", got)
	}
	if err := s.forget("a"); err != nil {
		t.Error(err)
	}
	t.Setenv("FDSTORE", "3")
	if room, short := s.short(1); short {
		t.Errorf("no room for one more of %d", room)
	}
	if _, short := s.short(2); !short {
		t.Error("room for two more")
	}
}
