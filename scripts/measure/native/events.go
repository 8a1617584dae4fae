package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// event is an event that the kernel counts for a process with perf_event_open(2).
type event struct {
	name   string
	kind   uint32
	config uint64
	filter string // of a tracepoint
}

// errUncountable is wrapped by errors about events that this machine cannot count.
var errUncountable = errors.New("not countable here")

// systemCall is the tracepoint of every system call.
const systemCall = "raw_syscalls/sys_enter"

// allCalls is the name of the event that counts every system call.
const allCalls = "system calls"

// calls has the system calls that are counted separately, with their numbers.
var calls = []struct {
	name   string
	number int
}{
	{"read", unix.SYS_READ}, {"readv", unix.SYS_READV}, {"recvmsg", unix.SYS_RECVMSG}, {"recvmmsg", unix.SYS_RECVMMSG},
	{"write", unix.SYS_WRITE}, {"writev", unix.SYS_WRITEV}, {"sendmsg", unix.SYS_SENDMSG}, {"sendmmsg", unix.SYS_SENDMMSG},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER}, {"ppoll", unix.SYS_PPOLL}, {"epoll_pwait", unix.SYS_EPOLL_PWAIT},
	{"epoll_wait", unix.SYS_EPOLL_WAIT}, {"futex", unix.SYS_FUTEX}, {"nanosleep", unix.SYS_NANOSLEEP},
	{"sched_yield", unix.SYS_SCHED_YIELD}, {"tgkill", unix.SYS_TGKILL},
}

// fabricEvents is the name of the event that counts how often the fabric in memory raises an
// event.
const fabricEvents = "events of the fabric"

// raised returns an event that counts how often the fabric in memory of a process raises an
// event. The fabric does that with a write(2) to an eventfd(2) in semaphore mode, in place of
// an adapter, which makes no system calls. raised returns no event if the kernel does not say
// which mode an eventfd has, as before 6.5.
func raised(pid int) ([]event, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return nil, err
	}
	var terms []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // the descriptor is closed by now
		}
		if err != nil {
			return nil, err
		}
		if semaphore.Match(text) {
			terms = append(terms, "fd == "+filepath.Base(f))
		}
	}
	if len(terms) == 0 {
		return nil, nil
	}
	id, err := tracepoint(writeCall)
	if err != nil {
		return nil, err
	}
	return []event{{fabricEvents, unix.PERF_TYPE_TRACEPOINT, id, strings.Join(terms, " || ")}}, nil
}

// writeCall is the tracepoint of write(2).
const writeCall = "syscalls/sys_enter_write"

// semaphore matches the fdinfo of an eventfd(2) in semaphore mode (proc(5)).
var semaphore = regexp.MustCompile(`(?m)^eventfd-semaphore:\s*1$`)

// systemCalls returns an event for all system calls, and one for each of calls.
func systemCalls() ([]event, error) {
	id, err := tracepoint(systemCall)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", allCalls, errUncountable, err)
	}
	events := []event{{name: allCalls, kind: unix.PERF_TYPE_TRACEPOINT, config: id}}
	for _, c := range calls {
		events = append(events, event{c.name, unix.PERF_TYPE_TRACEPOINT, id, fmt.Sprintf("id == %d", c.number)})
	}
	return events, nil
}

// tracepoint returns the number of a tracepoint. It mounts tracefs in a mount namespace of its
// own thread, because not every machine has tracefs mounted.
func tracepoint(name string) (id uint64, err error) {
	dir, err := os.MkdirTemp("", "tracefs")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	err = netns.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("making mounts private: %w", err)
		}
		if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			""); err != nil {
			return fmt.Errorf("mounting tracefs: %w", err)
		}
		text, err := os.ReadFile(dir + "/events/" + name + "/id")
		if err != nil {
			return err
		}
		id, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return err
	})
	return id, err
}

// instructions is the event that counts executed instructions, including those in the kernel.
var instructions = event{name: "instructions", kind: unix.PERF_TYPE_HARDWARE, config: unix.PERF_COUNT_HW_INSTRUCTIONS}

// tally counts events of all threads of a process, including threads that start later.
type tally struct {
	events []event
	fds    [][]int // descriptors of each event, one for each thread
}

// count starts to count events. A thread that starts later is counted with the thread that
// started it. A thread that starts during count could be missed, and so count begins again in
// this case.
func count(pid int, events []event) (*tally, error) {
	for range 20 {
		before, err := threads(pid)
		if err != nil {
			return nil, err
		}
		t := &tally{events: events, fds: make([][]int, len(events))}
		for i, e := range events {
			for _, tid := range before {
				fd, err := e.open(tid)
				if errors.Is(err, unix.ESRCH) {
					continue // the thread has ended
				}
				if err != nil {
					return nil, errors.Join(err, t.close())
				}
				t.fds[i] = append(t.fds[i], fd)
			}
		}
		after, err := threads(pid)
		if err == nil && slices.Equal(before, after) {
			return t, nil
		}
		if err := errors.Join(err, t.close()); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("process %d makes and ends threads all the time", pid)
}

func threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	return tids, nil
}

func (e event) open(tid int) (int, error) {
	attr := unix.PerfEventAttr{Type: e.kind, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitInherit | unix.PerfBitDisabled}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, err
	case err != nil:
		return -1, fmt.Errorf("%s: %w: %w", e.name, errUncountable, os.NewSyscallError("perf_event_open", err))
	}
	// The event must have its filter before it is enabled.
	if err := errors.Join(e.choose(fd), os.NewSyscallError("ioctl PERF_EVENT_IOC_ENABLE",
		unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0))); err != nil {
		return -1, errors.Join(fmt.Errorf("%s: %w", e.name, err), unix.Close(fd))
	}
	return fd, nil
}

// choose sets the filter of the event.
func (e event) choose(fd int) error {
	if e.filter == "" {
		return nil
	}
	filter, err := unix.BytePtrFromString(e.filter)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER,
		uintptr(unsafe.Pointer(filter)))
	if errno != 0 {
		return fmt.Errorf("filter %q: %w", e.filter, errno)
	}
	return nil
}

// countable returns the events that this machine can count, and why it cannot count the others.
func countable(events []event) (can []event, why []string) {
	for _, e := range events {
		fd, err := e.open(os.Getpid())
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		_ = unix.Close(fd)
		can = append(can, e)
	}
	return can, why
}

// read returns how often each event has happened, by its name.
func (t *tally) read() (map[string]uint64, error) {
	sums := make(map[string]uint64, len(t.events))
	for i, e := range t.events {
		for _, fd := range t.fds[i] {
			var n [8]byte
			if _, err := unix.Read(fd, n[:]); err != nil {
				return nil, fmt.Errorf("reading the count of %s: %w", e.name, err)
			}
			sums[e.name] += binary.NativeEndian.Uint64(n[:])
		}
	}
	return sums, nil
}

func (t *tally) close() error {
	var errs []error
	for _, fds := range t.fds {
		for _, fd := range fds {
			errs = append(errs, unix.Close(fd))
		}
	}
	t.fds = nil
	return errors.Join(errs...)
}
