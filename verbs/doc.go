// Package verbs is libibverbs for the rest of the module, and the only package
// of it that uses cgo. It implements package fabric on an RDMA device.
//
// # Shape
//
// Control verbs map one to one onto libibverbs; the doc comment of each ends
// with the C function that it stands for. Data verbs are batches: one cgo call
// posts or polls as many flat records as the caller has, and allocates
// nothing; the lists of pieces of requests with fabric.More are built on C's
// stack. Every error is an [*OpError] that wraps a [syscall.Errno] taken
// from the very call that failed.
//
// # Ownership
//
// A [Context] owns its [PD]s, a PD owns the [MR]s, [MW]s, [CQ]s and [QP]s made
// through it, and a CQ is closed after the QPs that report to it. Closing a
// parent closes its children first, so any order of Close calls is safe, also
// while another goroutine posts or polls: each queue is guarded by a mutex
// which only its one user takes, so it is never contended on the data path.
// After Close every method returns an error that wraps [net.ErrClosed].
//
// # Memory
//
// Registered memory lies outside the Go heap (mmap) and belongs to the caller.
// Nothing in this package keeps a Go pointer. Child processes started with
// os/exec share no pages that the device writes to, because the runtime forks
// with CLONE_VFORK|CLONE_VM; ibv_fork_init is not needed.
//
// # Waiting
//
// Nothing blocks inside a cgo call but ibv_modify_qp, which may resolve the
// peer's link-layer address in the kernel, and ibv_reg_mr, which pins pages.
// Completion and asynchronous events arrive on non-blocking file descriptors
// that sit in Go's poller, or in the caller's poll(2).
//
// # Without cgo
//
// With CGO_ENABLED=0 the package still builds, so that the other packages can
// be built and tested anywhere; [Open] and [Devices] then say what is missing.
package verbs
