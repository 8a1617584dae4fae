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

// fdStore is the service manager's store of file descriptors (sd_notify(3), FDSTORE=1). The
// store keeps duplicates of the descriptors that a service puts there, and passes them to the
// service's next process.
type fdStore struct {
	socket string // of the service manager, for notifications; empty for none

	mu     sync.Mutex          // guards the fields below
	held   map[string]int      // descriptors of the last process that were not taken yet, by name
	stored map[string]struct{} // the names of the descriptors in the store
}

// firstFD is SD_LISTEN_FDS_START, the first descriptor that the service manager passes to a
// process.
const firstFD = 3

// openStore receives the descriptors that the service manager has passed to this process.
// Without a service manager, the store is empty and stores nothing. openStore may be called only
// once: it removes the variables from the environment, so that child processes do not get them.
func openStore() (*fdStore, error) {
	s := &fdStore{socket: os.Getenv("NOTIFY_SOCKET"), held: map[string]int{}}
	pid, number, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return s, err
		}
	}
	if pid != strconv.Itoa(os.Getpid()) || number == "" {
		return s, nil // the descriptors are for another process, or there are none
	}
	return s, s.receive(number, names)
}

// receive takes the descriptors that LISTEN_FDS and LISTEN_FDNAMES describe. number and names
// are the values of these variables.
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

// enter records that the store has a descriptor of that name. The caller holds mu, or is the
// only user of s.
func (s *fdStore) enter(name string) {
	if s.stored == nil {
		s.stored = map[string]struct{}{}
	}
	s.stored[name] = struct{}{}
}

// there reports whether there is a service manager that may have a store.
func (s *fdStore) there() bool { return s.socket != "" }

// takeQueues returns the descriptors of a netdevice's queues, in order. The caller owns them.
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

// queueName returns the name of a queue's descriptor in the store. No netdevice has a slash in
// its name.
func queueName(netdevice string, queue int) string { return fmt.Sprintf("%s/%d", netdevice, queue) }

// putQueue puts a duplicate of the descriptor of a queue into the store.
func (s *fdStore) putQueue(netdevice string, queue, fd int) error {
	name := queueName(netdevice, queue)
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == ':' }) {
		return fmt.Errorf("a netdevice with the name %q cannot be kept over a restart: names in the service manager's store "+
			"have letters of ASCII only", netdevice)
	}
	// Without FDPOLL=0 the service manager would remove queues that are not in use, because
	// poll(2) reports an error for them.
	if err := s.send("FDSTORE=1\nFDNAME="+name+"\nFDPOLL=0", fd); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(name)
	return nil
}

// removeQueue removes the descriptor of a queue from the store.
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

// short reports whether the store lacks room for that many additional descriptors. room is its
// total capacity. short is false if the capacity is unknown: systemd provides it since version 254.
func (s *fdStore) short(more int) (room int, short bool) {
	room, err := strconv.Atoi(os.Getenv("FDSTORE"))
	s.mu.Lock()
	defer s.mu.Unlock()
	return room, err == nil && room < len(s.stored)+more
}

// removeRest closes the descriptors that were not taken, removes them from the store, and
// returns their names. It keeps the queues of the netdevices in needed.
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

// tidy calls removeRest and logs what was removed. The caller has adopted all netdevices that it
// can use now. The netdevices in needed may be adopted later; they have no carrier until then.
func (s *fdStore) tidy(log *slog.Logger, needed ...string) error {
	rest, err := s.removeRest(needed...)
	if err == nil && len(rest) > 0 {
		log.Warn("removed from the service manager's store, where they are of no use", "names", rest)
	}
	s.forsake()
	return err
}

// forget closes the descriptors that the last process has left of a netdevice's queues, and
// removes all queues of the netdevice from the store.
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

// endpoint is the configuration of an endpoint, which adopts netdevices from the store and leaves
// its own there.
type endpoint interface {
	needDirectories() error
	privileges() privileges
	run(context.Context, *fdStore) error
}

// runWithStore runs the endpoint that read returns. If that fails, the netdevices that the last
// process has left lose their carrier.
func runWithStore(ctx context.Context, read func() (endpoint, error)) error {
	e, err := read()
	if err == nil {
		err = e.needDirectories()
	}
	if err == nil {
		err = limit(ctx, e.privileges())
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	store, storeErr := openStore()
	if err = errors.Join(err, storeErr); err == nil {
		err = e.run(ctx, store)
	}
	if err != nil {
		store.forsake()
	}
	return err
}

// forsake takes the carrier away from the netdevices whose descriptors were not taken. The
// descriptors stay in the store, for a later process that may be able to use them.
func (s *fdStore) forsake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.held {
		_ = tap.SetCarrier(fd, false) // this succeeds for every usable queue
	}
}

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
