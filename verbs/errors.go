package verbs

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/units"
)

// OpError is the error of every operation of this package.
type OpError struct {
	Op     string // operation, with its relevant attributes
	Device string // RDMA device, empty if there is none yet
	QPN    uint32 // queue pair number, 0 if the operation concerns no queue pair
	Err    error  // wraps a syscall.Errno, net.ErrClosed or a sentinel of package fabric
	Hint   string // possible cause, or remedy; may be empty
}

// Error implements error.
func (e *OpError) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.QPN != 0 {
		s = fmt.Sprintf("queue pair %#x: %s", e.QPN, s)
	}
	if e.Device != "" {
		s = e.Device + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// MemlockLimit returns the number of bytes of memory that this process may lock. Registered
// memory counts against this limit unless the process has CAP_IPC_LOCK. limited is false if
// there is no limit.
func MemlockLimit() (limit uint64, limited bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil || r.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	return r.Cur, true
}

// errno returns the result of a verb as an errno. Some drivers return a negative one, against
// the manual.
func errno[T ~int32](result T) syscall.Errno {
	n := int64(result)
	return syscall.Errno(max(n, -n))
}

// errNotSupp is ENOTSUPP, which drivers pass on from inside the kernel.
const errNotSupp syscall.Errno = 524

// wrapped wraps an errno with fabric.ErrUnsupported if it means that, and otherwise returns the error
// unchanged.
func wrapped(err error) error {
	switch err {
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT, errNotSupp:
		return fmt.Errorf("%w: %w", fabric.ErrUnsupported, err)
	}
	return err
}

func opErr(device, op string, no syscall.Errno, hint string) error {
	if hint == "" && no == syscall.EAGAIN {
		hint = cgroupHint
	}
	return &OpError{Op: op, Device: device, Err: wrapped(no), Hint: hint}
}

// cgroupHint explains EAGAIN. Verbs do not wait, and only a control group answers with it.
const cgroupHint = "a control group limits the RDMA objects of this process: see rdma.current and raise rdma.max of its cgroup, " +
	"or of the container or service, hca_handle or hca_object"

// openErrno returns the reason why a device could not be opened. If the character device
// exists but cannot be opened, libibverbs looks for another one and returns ENOENT. In that
// case openErrno returns the errno of opening charDev.
func openErrno(no syscall.Errno, charDev string) syscall.Errno {
	if no != syscall.ENOENT || charDev == "" {
		return no
	}
	fd, err := unix.Open(charDev, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return no
	}
	errors.As(err, &no)
	return no
}

// openHints explain why a device could not be opened.
var openHints = map[syscall.Errno]string{
	syscall.ENODEV: "`rdma link` lists the devices; for Soft-RoCE: rdma link add rxe0 type rxe netdev eth0",
	syscall.ENOENT: "no character device: is the kernel module ib_uverbs loaded, and is /dev/infiniband visible here?",
	syscall.EACCES: "no access to /dev/infiniband/uverbs*: run as root, or with a group that may open it",
	syscall.EPERM:  "/dev/infiniband/uverbs* is not allowed here: let the service use it, DeviceAllow=char-infiniband* rw, or the container, --device /dev/infiniband",
	syscall.ENOSYS: "kernel without user verbs: modprobe ib_uverbs",
}

// regHint explains why length bytes could not be registered.
func regHint(no syscall.Errno, length int, limit uint64, limited bool) string {
	switch no {
	case syscall.ENOMEM:
		if limited {
			return fmt.Sprintf("RLIMIT_MEMLOCK is %s and %s were to be locked: raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in the unit, or grant CAP_IPC_LOCK",
				units.Size(limit), units.Size(length))
		}
		return "RLIMIT_MEMLOCK is unlimited: the machine is out of memory, or the device out of memory regions"
	case syscall.EFAULT:
		return "the memory is not mapped, or not writable although LocalWrite was asked for"
	case syscall.EINVAL:
		return "RemoteWrite needs LocalWrite as well"
	case syscall.EPERM:
		return "locking memory was refused: grant CAP_IPC_LOCK"
	}
	return ""
}

// rtrHint explains why a queue pair could not be moved to RTR.
func rtrHint(no syscall.Errno, local, remote GID) string {
	switch no {
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return fmt.Sprintf("no ARP or neighbour-discovery answer from GID %s to %s: is that address reachable from the netdevice behind this GID (ping -I), and is the link up?", remote, local)
	case syscall.EINVAL:
		return fmt.Sprintf("local GID %s, remote GID %s: both must be RoCE v2, or both v1, of one address family, and still in the GID tables", local, remote)
	}
	return ""
}

// cqHint explains why a completion queue could not be created.
func cqHint(no syscall.Errno, depth, vector int, l fabric.Limits) string {
	if no != syscall.EINVAL {
		return ""
	}
	return fmt.Sprintf("depth must be 1 … %d and the completion vector 0 … %d; asked for %d and %d", l.MaxCQE,
		l.CompVectors-1, depth, vector)
}

// moderationHint explains why a completion queue could not be moderated.
func moderationHint(no syscall.Errno, count int, period time.Duration) string {
	switch {
	case no == syscall.EINVAL && count > 0:
		return fmt.Sprintf("the device takes up to %d completions and %v", count, period)
	case no == syscall.EOPNOTSUPP || no == syscall.ENOSYS:
		return "every completion raises its event: poll for a while before sleeping instead"
	}
	return ""
}

// sendHint explains why a queue pair with configuration c rejected the first request of wrs.
func sendHint(wrs []fabric.SendWR, c fabric.QPConfig) string {
	op := wrs[0].Op
	more := wrs[0].Flags&fabric.More != 0
	switch {
	case op == fabric.OpLocalInv && more:
		return fmt.Sprintf("flag More with opcode %d, which sends no data", op)
	case op == fabric.OpRead && c.MaxRdAtomic == 0:
		return "a read, of which the queue pair has none outstanding: see QPConfig.MaxRdAtomic"
	case op == fabric.OpRead && (more || wrs[0].Flags&fabric.Inline != 0):
		return "a read is one record, and not inline"
	case op < fabric.OpSend || op == fabric.OpBind || op > fabric.OpSendImm:
		return fmt.Sprintf("opcode %d cannot be posted", op)
	}
	n, size := 1, uint64(wrs[0].Len)
	for ; wrs[n-1].Flags&fabric.More != 0; n++ {
		if n == len(wrs) {
			return "flag More on the last record of the call: a request ends in the call that it begins in"
		}
		size += uint64(wrs[n].Len)
	}
	switch {
	case n > c.MaxSGE:
		return fmt.Sprintf("%d pieces of data, the queue pair takes %d: see QPConfig.MaxSGE", n, c.MaxSGE)
	case wrs[0].Flags&fabric.Inline != 0 && size > uint64(c.MaxInline):
		return fmt.Sprintf("%d bytes inline, the queue pair takes %d", size, c.MaxInline)
	case size > math.MaxUint32:
		return fmt.Sprintf("%d bytes in one message", size)
	}
	return ""
}

// qpHint explains why a queue pair could not be created.
func qpHint(no syscall.Errno, c fabric.QPConfig, l fabric.Limits) string {
	switch no {
	case syscall.EINVAL:
		return fmt.Sprintf("asked for %d sends of up to %d pieces and %d receives, without inline data in the end; the device takes at most %d work requests and %d pieces, fewer of one if the other is many",
			c.MaxSend, c.MaxSGE, c.MaxRecv, l.MaxQPWR, l.MaxSGE)
	case syscall.EOPNOTSUPP, syscall.ENOSYS, errNotSupp:
		if c.Transport == fabric.UC {
			return "the device has no unreliable connections (UC): use another mode than send-uc"
		}
		return "the device has no reliable connections (RC), on which sessions run: use another device"
	case syscall.ENOMEM:
		return "the device is out of queue pairs or memory, or RLIMIT_MEMLOCK is too low: ulimit -l unlimited"
	}
	return ""
}
