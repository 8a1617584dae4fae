// Package bufpool keeps the registered buffers of the push-push messaging
// layer and the ledger of who may touch which one. It decides, and does nothing:
// what it wants to be done is carried out by package messaging.
//
//   - [Arena] is memory outside the Go heap, in huge pages where they are to be
//     had, made for registering once and staying put.
//   - [Slots] divides an arena into equal send buffers.
//   - [Elements] are the target's side of a pool's elements: our own memory, lent to
//     the peer.
//   - [Credits] are the initiator's side of them: the peer's elements that we may
//     write, each one a credit.
//   - [Returns] says which elements go back when, and [Batch] is how those of
//     one-touch pools get there.
//   - [Local] and [Remote] are pools, of which they are the elements, and [Pools] is
//     the state machine that takes them from one state to the next: how a pool comes,
//     and how it goes.
//
// # States of an element
//
// The target sees an element as lent (the peer may write it, or has and the
// indication is on its way), consumed (indicated, being handed to the port) or
// returning (free, not yet returned to the peer). The initiator sees it as
// available or out. At any time, on each side, the states add up to the number
// of elements: see [Ledger].
//
//	target      lent ──Consume──▶ consumed ──Release──▶ returning ──Returned──▶ lent
//	initiator   available ──Take──▶ out ──Return──▶ available
//
// # The bound on updates
//
// A pool is due for an update when a quarter of its elements, rounded up, are
// returning. The peer re-posts the receive of an update before it uses the
// elements named there, so the updates of one pool that still occupy a receive
// at the peer name disjoint sets of elements, each a quarter of the pool or
// more: there are never more than protocol.UpdatesPerPool of them, without any
// acknowledgement. Nor can the initiator starve: fewer than a quarter of the
// elements are ever held back. Updates that are sent earlier, because the
// initiator waits for what is in them, are bounded elsewhere: see package
// messaging.
package bufpool
