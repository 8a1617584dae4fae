// Package directed moves data between an I/O device and the memory of another unit,
// without the unit that owns the device in between: the source document 002.
// docs/protocol.md §8 has the lists and the messages.
//
// A [Node] is a unit, a host or an I/O unit, in any of three parts:
//
//   - the requester registers memory with a [Link] to the owner, names it in a
//     list, and asks ([Link.Do]);
//   - the owner judges the request ([Config.Allow]) and passes it on to the I/O unit
//     that has the device ([Node.Assign]), over another Link. It passes on as well
//     what both say to connect;
//   - the I/O unit finds its connection to the requester by the platform identifier,
//     or makes one, and moves the data by RDMA write (to read from the device) or
//     RDMA read (to write to it).
//
// What a requester registers is open to whom its owner directs, until it is revoked
// ([Memory.Close]): the device refuses the handle from then on. The connections
// that an owner has it make are in one protection domain, apart from those of other
// owners, and the link with the owner is in a domain of its own: the owner cannot
// use a handle. A requester connects only while it waits for an answer of the
// owner.
//
// Each side has at most one request and one connection asked for on a link; who
// asks for more loses the link. So an I/O unit carries out the requests that an
// owner passes on one after the other, whoever they are from, each within
// [Config.Timeout].
package directed
