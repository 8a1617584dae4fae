// Package fabric is the contract between the push-push messaging layer and
// whatever moves its bytes: post a batch, poll a batch, wait, close.
//
// It is not a mock of libibverbs. It is the small part of the verbs that the
// messaging layer needs, with two real implementations: package verbs
// (libibverbs on an RDMA device) and package fabric/fabrictest (memory, with
// the semantics of reliable and unreliable connections and fault injection).
// One conformance suite, the properties of package fabric/conform, passes against
// both.
//
// # Objects
//
// A [Device] makes protection domains. A [Domain] owns everything that is made
// through it: regions, windows, completion queues and queue pairs. Closing a
// parent closes its children first, so that closing in any order is safe;
// Close is idempotent everywhere and a later call on a closed object returns
// an error that wraps [net.ErrClosed].
//
// # Records
//
// Work requests and completions are flat, pointer-free records, so that a
// batch crosses cgo in one call without allocation and without a pointer that
// the garbage collector would have to know. That is also why a request whose
// data lies in several places is several records, tied together by [More],
// instead of one with a list: headers and frames that lie apart become one
// message without being copied next to each other.
//
// # Concurrency
//
// One goroutine at a time may post to the send queue of a [QP], one to its
// receive queue, and one may poll a [CQ]; the three may be different ones.
// Everything else may be called from any goroutine.
package fabric
