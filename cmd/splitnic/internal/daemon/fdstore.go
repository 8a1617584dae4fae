package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap"
)

// fdStore is the service manager's store of file descriptors (sd_notify(3),
// FDSTORE=1): it keeps copies of what a service puts there, and hands them to
// the service's next process.
type fdStore struct {
	socket string // the manager's, for notifications; empty for none

	mu     sync.Mutex          // guards what follows
	held   map[string]int      // what the last process has left, by name
	stored map[string]struct{} // the names of the descriptors in the store
}

// firstFD is SD_LISTEN_FDS_START: where the descriptors begin that a process is
// started with.
const firstFD = 3

// openStore takes what the service manager has handed to this process. The
// store is empty, and takes nothing, where there is no service manager. It may
// be called once: the environment of child processes does not tell of it.
func openStore() (*fdStore, error) {
	s := &fdStore{socket: os.Getenv("NOTIFY_SOCKET"), held: map[string]int{}}
	pid, number, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return s, err
		}
	}
	if pid != strconv.Itoa(os.Getpid()) || number == "" {
		return s, nil // for another process, or for none
	}
	return s, s.receive(number, names)
}

// receive takes the descriptors that the variables LISTEN_FDS and
// LISTEN_FDNAMES tell of.
func (s *fdStore) receive(number, names string) error {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return fmt.Errorf("the service manager's LISTEN_FDS=%q is no number of descriptors", number)
	}
	list := strings.Split(names, ":")
	if n > 0 && len(list) != n {
		return fmt.Errorf("the service manager's LISTEN_FDNAMES has %d names for %d descriptors", len(list), n)
	}
	for i := range n {
		fd := firstFD + i
		unix.CloseOnExec(fd)
		if old, twice := s.held[list[i]]; twice {
			_ = unix.Close(old) // one name has one descriptor: the last
		}
		s.held[list[i]] = fd
		s.enter(list[i])
	}
	return nil
}

// enter notes that the store has a descriptor of that name. The caller holds mu, or is the only
// user of s.
func (s *fdStore) enter(name string) {
	if s.stored == nil {
		s.stored = map[string]struct{}{}
	}
	s.stored[name] = struct{}{}
}

// there reports whether there is a service manager that may have a store.
func (s *fdStore) there() bool { return s.socket != "" }

// takeQueues returns the descriptors of a netdevice's queues, which are the
// caller's from then on.
func (s *fdStore) takeQueues(netdevice string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fds []int
	for {
		name := queueName(netdevice, len(fds))
		fd, ok := s.held[name]
		if !ok {
			return fds
		}
		delete(s.held, name)
		fds = append(fds, fd)
	}
}

// queueName is the name of a queue's descriptor in the store. No netdevice has
// a slash in its name.
func queueName(netdevice string, queue int) string { return fmt.Sprintf("%s/%d", netdevice, queue) }

// putQueue gives a copy of the descriptor of a queue to the store.
func (s *fdStore) putQueue(netdevice string, queue, fd int) error {
	name := queueName(netdevice, queue)
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == ':' }) {
		return fmt.Errorf("a netdevice with the name %q cannot be kept over a restart: names in the service manager's store "+
			"have letters of ASCII only", netdevice)
	}
	// Without FDPOLL=0 the manager would drop queues that are not in use: poll(2)
	// reports an error of them.
	if err := s.send("FDSTORE=1\nFDNAME="+name+"\nFDPOLL=0", fd); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(name)
	return nil
}

// removeQueue takes the descriptor of a queue out of the store.
func (s *fdStore) removeQueue(netdevice string, queue int) error {
	return s.remove(queueName(netdevice, queue))
}

func (s *fdStore) remove(name string) error {
	if err := s.send("FDSTOREREMOVE=1\nFDNAME=" + name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stored, name)
	return nil
}

// short reports whether the store has no room for so many descriptors more, and how much
// it has in all. Service managers of before version 254 do not tell.
func (s *fdStore) short(more int) (room int, short bool) {
	room, err := strconv.Atoi(os.Getenv("FDSTORE"))
	s.mu.Lock()
	defer s.mu.Unlock()
	return room, err == nil && room < len(s.stored)+more
}

// removeRest closes what nobody has taken, and takes it out of the store, but for the
// queues of the netdevices that are needed.
func (s *fdStore) removeRest(needed ...string) (names []string, err error) {
	s.mu.Lock()
	rest := map[string]int{}
	for name, fd := range s.held {
		netdevice, _, _ := strings.Cut(name, "/")
		if !slices.Contains(needed, netdevice) {
			rest[name] = fd
			delete(s.held, name)
		}
	}
	s.mu.Unlock()
	var errs []error
	for name, fd := range rest {
		names = append(names, name)
		errs = append(errs, s.remove(name), unix.Close(fd))
	}
	return names, errors.Join(errs...)
}

// tidy is removeRest for when all have taken what is of use to them, but for those that
// need it later: these have no carrier until then.
func (s *fdStore) tidy(log *slog.Logger, needed ...string) error {
	rest, err := s.removeRest(needed...)
	if err == nil && len(rest) > 0 {
		log.Warn("removed from the service manager's store, where they are of no use", "names", rest)
	}
	s.forsake()
	return err
}

// forget closes the descriptors that the last process has left of a netdevice, and removes all of
// the netdevice's queues from the store.
func (s *fdStore) forget(netdevice string) error {
	var errs []error
	for _, fd := range s.takeQueues(netdevice) {
		errs = append(errs, unix.Close(fd))
	}
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.stored))
	s.mu.Unlock()
	for _, name := range names {
		if strings.HasPrefix(name, netdevice+"/") {
			errs = append(errs, s.remove(name))
		}
	}
	return errors.Join(errs...)
}

// runner is a process that takes netdevices from the store, and leaves them there.
type runner func(context.Context, *fdStore) error

// runWithStore runs what prepare returns. What the last process has left keeps its carrier
// only if that does not fail, nor prepare.
func runWithStore(ctx context.Context, prepare func() (runner, error)) error {
	run, err := prepare()
	ctx, stop := interruptible(ctx)
	defer stop()
	store, storeErr := openStore()
	if err = errors.Join(err, storeErr); err == nil {
		err = run(ctx, store)
	}
	if err != nil {
		store.forsake()
	}
	return err
}

// forsake takes the carrier of what nobody has taken, and leaves it in the store
// for a process that may do better.
func (s *fdStore) forsake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.held {
		_ = tap.SetCarrier(fd, false) // of a queue that is of use, this works
	}
}

// send sends a notification with descriptors.
func (s *fdStore) send(state string, fds ...int) error {
	fail := func(call string, err error) error {
		return fmt.Errorf("service manager: %w", os.NewSyscallError(call, err))
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail("socket", err)
	}
	defer unix.Close(fd)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: s.socket}, 0); err != nil {
		return fail("sendmsg", err)
	}
	return nil
}
