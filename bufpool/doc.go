// Package bufpool has the registered buffers of the push-push messaging layer and their
// states. It only decides; package messaging carries out its actions.
//
//   - [Arena] is memory outside the Go heap, in huge pages if there are any. It is
//     registered once and does not move.
//   - [Slots] has the send buffers of a data channel, all of the same size.
//   - [Elements] is the target's side of a pool: local memory that is lent to the peer.
//   - [Credits] is the initiator's side of a pool: remote elements that may be written, each
//     of which is a credit.
//   - [Returns] determines when which elements are returned, and [Batch] has elements of
//     one-touch pools on their way to that.
//   - [Local] and [Remote] are pools with such elements. [Pools] is the state machine of
//     their creation and end.
//
// # States of an element
//
// On the target's side an element is lent (the peer may write it, or has written it and the
// indication is in flight), consumed (indicated, and not yet taken by the port) or returning
// (free, and not yet returned to the peer). On the initiator's side it is available or out.
// At any time, on each side, the counts of the states add up to the number of elements: see
// [Ledger].
//
//	target      lent ──Consume──▶ consumed ──Release──▶ returning ──Returned──▶ lent
//	initiator   available ──Take──▶ out ──Return──▶ available
//
// # The bound on updates
//
// An update is due for a pool when a quarter of its elements, rounded up, are returning. The
// peer posts the receive of an update again before it uses the elements named there. So the
// updates of one pool that occupy a receive of the peer name disjoint sets of elements, each
// at least a quarter of the pool. Therefore there are never more than
// protocol.UpdatesPerPool of them, without any acknowledgement. The initiator cannot starve
// either, because fewer than a quarter of the elements are held back.
//
// The last update of a pool that ends may name fewer, if it has to acknowledge indications.
// It is one of these updates all the same: if there were four others, they would name all
// elements, and none would be left to be returned. So pools can end together, as many as
// there are. Other updates that are sent earlier, because the initiator waits for them, have
// a bound of their own: see package messaging.
package bufpool
