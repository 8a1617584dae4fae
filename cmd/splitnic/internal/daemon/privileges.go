package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/scrape"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/vhostuser"
)

// capSet is a set of capabilities(7), by number.
type capSet uint64

func caps(numbers ...int) capSet {
	var s capSet
	for _, n := range numbers {
		s |= 1 << n
	}
	return s
}

// privileges has what an endpoint needs as long as it runs. Every session makes queue pairs and
// registers memory, and on an I/O unit also makes a LAN interface.
type privileges struct {
	caps capSet
	// files are read and dirs are written. CAP_DAC_OVERRIDE is given up if their owners permit
	// this without it.
	files, dirs []string
}

// privileges returns what both endpoints need.
func (c *Common) privileges() privileges {
	p := privileges{
		caps:  caps(unix.CAP_NET_ADMIN, unix.CAP_IPC_LOCK, unix.CAP_SYS_NICE),
		files: []string{c.ConfigFile, c.Keys.Key, c.Keys.Cert, c.Keys.CA, c.Keys.TrustFile, c.Keys.Revoked},
		dirs:  []string{statussock.Dir},
	}
	p.files = append(p.files, scrape.Files(c.MetricsConfig)...)
	if c.StatusSocket != "" {
		p.dirs = []string{filepath.Dir(c.StatusSocket)}
	}
	if c.Latency != nil {
		p.caps |= caps(unix.CAP_BPF) // for the programs that steer frames
	}
	if c.NetNS != "" {
		p.caps |= caps(unix.CAP_SYS_ADMIN) // setns(2)
	}
	if lowPort(c.Metrics) {
		p.caps |= caps(unix.CAP_NET_BIND_SERVICE)
	}
	return p
}

// privileges returns what a host needs. Without CAP_NET_BROADCAST, a host would notice only
// after seconds that a VLAN device was moved to a container. CAP_BPF is for the program that
// discards datagrams at a TAP device.
func (c *Host) privileges() privileges {
	p := c.Common.privileges()
	p.caps |= caps(unix.CAP_NET_BROADCAST)
	if c.Port == (vhostuser.Address{}) {
		p.caps |= caps(unix.CAP_BPF)
	} else {
		p.dirs = append(p.dirs, filepath.Dir(c.Port.Path), c.Port.Path)
	}
	if c.Movable {
		p.caps |= caps(unix.CAP_SYS_ADMIN) // setns(2)
	}
	return p
}

// privileges returns what an agent needs. Its cards are in the network namespaces of other
// processes. Without CAP_SYS_PTRACE it could not use /proc/PID/ns/net of a process with more
// privileges than its own (proc_pid_ns(5)).
func (c *Agent) privileges() privileges {
	p := c.Host.privileges()
	p.caps |= caps(unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE)
	p.dirs = append(p.dirs, c.State)
	return p
}

// privileges returns what an I/O unit needs, which includes packet sockets, and what the kind of LAN
// interface takes for each session.
func (c *IOUnit) privileges() privileges {
	p := c.Common.privileges()
	p.caps |= caps(unix.CAP_NET_RAW)
	p.files = append(p.files, c.Policy)
	p.dirs = append(p.dirs, statussock.Dir) // the lock of the card
	p.dirs = append(p.dirs, c.Kind.Dirs(c.NIC)...)
	kind := c.Kind.Facts()
	p.caps |= caps(kind.Capabilities...)
	if lowPort(c.Listen) {
		p.caps |= caps(unix.CAP_NET_BIND_SERVICE)
	}
	if c.NetNS != "" || !initialNetNS() {
		p.caps |= caps(kind.Elsewhere...)
	}
	return p
}

// lowPort reports whether a listening address has a port that only privileged processes may
// listen on.
func lowPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n < 1024
}

// initialNetNS reports whether this process is in the initial network namespace, the only one
// whose devices are in /dev. Only that namespace has the file whose existence is checked.
func initialNetNS() bool {
	_, err := os.Stat("/proc/sys/net/core/netdev_max_backlog")
	return err == nil
}

// processKey is the key of a mark in a context: the command has the process to itself. Tests run
// commands in their own process, without the mark.
type processKey struct{}

// OwnProcess returns ctx with the mark that the command has the process to itself.
func OwnProcess(ctx context.Context) context.Context {
	return context.WithValue(ctx, processKey{}, true)
}

// AsEndpoint calls f with only those capabilities of this process that an endpoint has for
// loading BPF programs.
func AsEndpoint(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	have, err := threadPrivileges()
	if err == nil {
		err = setCaps(have.permitted, have.permitted&caps(unix.CAP_BPF, unix.CAP_NET_ADMIN))
	}
	if err != nil {
		return err
	}
	return errors.Join(f(), setCaps(have.permitted, have.permitted))
}

// interruptible returns a context that SIGINT and SIGTERM cancel, if the command has the process
// to itself. Call it after limit, which may start the program again: the new program would not
// know of a signal that the old one has caught. An earlier signal ends the process, which has
// made nothing yet.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	if ctx.Value(processKey{}) == nil {
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
}

// limit drops the privileges that a command does not need, if it has the process to itself.
func limit(ctx context.Context, p privileges) error {
	if ctx.Value(processKey{}) == nil {
		return nil
	}
	return dropPrivileges(p)
}

// dropPrivileges permanently gives up all capabilities that are not needed, and the right to
// gain any. In a Go process with cgo, a thread can do that only for itself. So one thread does it,
// and then executes this program again. The new program has the capabilities of this thread
// (execve(2)), and keeps the process ID, the environment and the descriptors. If there is nothing
// to give up, dropPrivileges returns nil.
func dropPrivileges(p privileges) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	have, err := threadPrivileges()
	if err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	// A sealed process has been limited, here or by whatever started it. If it has
	// CAP_DAC_OVERRIDE, it needs that.
	if have.permitted&^(p.caps|caps(unix.CAP_DAC_OVERRIDE)) == 0 && have.sealed {
		return nil
	}
	if err := have.keep(p); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	err = unix.Exec(self, os.Args, os.Environ())
	return fmt.Errorf("starting again with fewer capabilities: %w", &os.PathError{Op: "execve", Path: self, Err: err})
}

// thread has the privileges of the calling thread.
type thread struct {
	permitted, effective capSet
	sealed               bool // no_new_privs is set: it can gain no privileges
}

func threadPrivileges() (thread, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return thread{}, os.NewSyscallError("capget", err)
	}
	sealed, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return thread{}, os.NewSyscallError("prctl PR_GET_NO_NEW_PRIVS", err)
	}
	return thread{
		permitted: capSet(data[0].Permitted) | capSet(data[1].Permitted)<<32,
		effective: capSet(data[0].Effective) | capSet(data[1].Effective)<<32,
		sealed:    sealed == 1,
	}, nil
}

// Capabilities returns a function that reports whether this process has a
// capability.
func Capabilities() (has func(bit uint) bool, err error) {
	have, err := threadPrivileges()
	return func(bit uint) bool { return have.effective&(1<<bit) != 0 }, err
}

// keep limits the calling thread, and the programs that it executes, to the capabilities that p
// needs.
func (t thread) keep(p privileges) error {
	kept := t.permitted & p.caps
	if t.permitted&caps(unix.CAP_DAC_OVERRIDE) != 0 {
		// A process that was started by hand may have to use files of another user.
		if err := setCaps(t.permitted, kept); err != nil {
			return err
		}
		denied := p.denied()
		if err := setCaps(t.permitted, t.permitted); err != nil {
			return err
		}
		if denied {
			kept |= caps(unix.CAP_DAC_OVERRIDE)
		}
	}
	// When root executes a program, the program gets the capabilities in the bounding set. For
	// other users it gets the ambient ones.
	if t.permitted&caps(unix.CAP_SETPCAP) != 0 {
		for c := 0; ; c++ {
			in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
			if errors.Is(err, unix.EINVAL) {
				break // the kernel has no more
			}
			if err == nil && in == 1 && kept&caps(c) == 0 {
				err = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
			}
			if err != nil {
				return fmt.Errorf("capability %d: %w", c, os.NewSyscallError("prctl PR_CAPBSET_DROP", err))
			}
		}
	}
	if err := setCaps(kept, kept); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_CAP_AMBIENT_CLEAR_ALL", err)
	}
	if os.Geteuid() != 0 {
		for c := range 64 {
			if kept&caps(c) == 0 {
				continue
			}
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
				return fmt.Errorf("capability %d: %w", c, os.NewSyscallError("prctl PR_CAP_AMBIENT_RAISE", err))
			}
		}
	}
	return os.NewSyscallError("prctl PR_SET_NO_NEW_PRIVS", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// setCaps sets the capabilities of the calling thread. The inheritable set is the effective one,
// because ambient capabilities have to be inheritable.
func setCaps(permitted, effective capSet) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i] = unix.CapUserData{
			Effective:   uint32(effective >> (32 * i)),
			Permitted:   uint32(permitted >> (32 * i)),
			Inheritable: uint32(effective >> (32 * i)),
		}
	}
	return os.NewSyscallError("capset", unix.Capset(&hdr, &data[0]))
}

// denied reports whether the effective capabilities of the calling thread do not suffice for one
// of the files or directories.
func (p *privileges) denied() bool {
	no := func(path string, mode uint32) bool {
		return path != "" && errors.Is(unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS), unix.EACCES)
	}
	for _, path := range p.files {
		if no(path, unix.R_OK) {
			return true
		}
	}
	for _, path := range p.dirs {
		if no(path, unix.W_OK|unix.X_OK) {
			return true
		}
	}
	return false
}
