// Package fabric is the contract between the push-push messaging layer and the
// implementations of its transport: post a batch, poll a batch, wait, close.
//
// It is not a mock of libibverbs. It is the small part of the verbs that the messaging layer
// needs, with two real implementations: package verbs (libibverbs on an RDMA device) and
// package fabric/fabrictest (memory, with the semantics of reliable and unreliable
// connections and fault injection). Both pass one conformance suite, the properties of
// package fabric/conform.
//
// # Objects
//
// A [Device] creates protection domains. A [Domain] owns the objects created through it:
// regions, windows, completion queues and queue pairs. Closing a parent closes its children
// first, so that any order of Close calls is safe. Every Close is idempotent. Any other method
// of a closed object returns an error that wraps [net.ErrClosed].
//
// # Records
//
// Work requests and completions are flat, pointer-free records, so that a batch is passed
// through cgo in one call, without allocation and without pointers that the garbage collector
// would have to know. For the same reason a request with data in several places is several
// records, linked by [More], instead of one record with a list. So headers and frames in
// different places become one message without a copy.
//
// # Concurrency
//
// One goroutine at a time may post to the send queue of a [QP], one to its receive queue, and
// one may poll a [CQ]; these may be three different goroutines. All other methods may be
// called from any goroutine.
package fabric
