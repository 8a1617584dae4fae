// Package directed moves data between an I/O device and the memory of another unit. The data
// does not pass through the unit that owns the device. This is the source document 002;
// docs/protocol.md §8 describes the lists and the messages.
//
// A [Node] is a unit, which is a host or an I/O unit, in any of three roles:
//
//   - The requester registers memory with a [Link] to the owner, names the memory in a
//     list, and sends a request ([Link.Do]).
//   - The owner checks the request ([Config.Allow]) and passes it on to the I/O unit that
//     has the device ([Node.Assign]), over another Link. It also passes on the messages by
//     which the other two connect.
//   - The I/O unit finds its connection to the requester by the platform identifier in the
//     list, or makes one. It moves the data by RDMA write (to read from the device) or RDMA
//     read (to write to the device).
//
// A request has several transactions, which the I/O unit carries out one after the other. Each has
// buffers with source data, buffers for results, or both; what both together mean is up to the I/O
// device ([Exchanger]). The owner sees every transaction, but not all of a long list. The I/O unit
// therefore compares the list with the transactions before it moves data.
//
// A list can also name memory of other units. They have a Link to the same owner and offer the
// memory to the requester ([Link.Offer]). The owner admits them ([Node.Admit]) and allows it
// ([Config.AllowMemory]), and is asked for each request.
//
// Memory that a requester registers is accessible to the I/O units that its owner directs. When
// the memory is revoked ([Memory.Close]), the requester's device refuses its handle from then
// on. The connections that a unit makes for an owner and the requests of one unit are in one
// protection domain, separate from all others. The link with the owner is in a domain of its
// own, so that the owner cannot use a handle. A requester makes connections only while it waits
// for an answer of the owner, another unit only while it offers memory.
//
// Each side may have at most one unanswered request and one unanswered connect message on a
// link. If a side sends more, the other one ends the link. An I/O unit therefore carries out
// the requests that an owner passes on one after the other, whichever requester they are from,
// and each within [Config.Timeout].
//
// If Config.Device is a device.Device, an event of the device ends a link that it concerns, with its
// reason, and a transfer. A port that goes down ends what waits for a peer.
package directed
