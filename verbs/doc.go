// Package verbs wraps libibverbs and implements package fabric on an RDMA device. It is the
// only package of the module that uses cgo.
//
// # Shape
//
// Control verbs map one to one onto libibverbs; the doc comment of each ends with the C
// function that it calls. Data verbs work in batches: one cgo call posts or polls as many
// flat records as the caller has, and does not allocate. The scatter/gather lists of requests
// with fabric.More are built on the C stack. Every error is an [*OpError] that wraps a
// [syscall.Errno] returned by the same call that failed.
//
// # Ownership
//
// A [Context] owns its [PD]s, a PD owns the [MR]s, [MW]s, [CQ]s and [QP]s created through it,
// and a CQ is closed after the QPs that use it. Closing a parent closes its children first.
// So any order of Close calls is safe, even while another goroutine posts or polls: a mutex
// guards each queue. On the data path only the queue's one user takes the mutex, so it is
// never contended there. After Close every method returns an error that wraps [net.ErrClosed].
//
// # Memory
//
// Registered memory is outside the Go heap (mmap) and belongs to the caller. This package
// keeps no Go pointers. ibv_fork_init is not needed: the runtime forks with
// CLONE_VFORK|CLONE_VM, so child processes started with os/exec share no pages that the
// device writes to.
//
// # Waiting
//
// Only two functions block inside a cgo call: ibv_modify_qp, which may resolve the peer's
// link-layer address in the kernel, and ibv_reg_mr, which pins pages. Completion and
// asynchronous events arrive on non-blocking file descriptors, for Go's poller or for the
// caller's poll(2).
//
// # Without cgo
//
// With CGO_ENABLED=0 the package still builds, so that the other packages can be built and
// tested anywhere. [Open] and [Devices] then return an error that says what is missing.
package verbs
