// Package protocol is the wire format between a host and an I/O unit: the
// control messages that travel as SENDs on the control channel, the immediate
// data of the RDMA writes on the data channels, the SendData messages that take
// the writes' place in some transfer modes, and the packing of work request
// identifiers. docs/protocol.md describes the same bytes for those
// who write a peer of their own.
//
// Everything on the wire is big-endian. A control message is one SEND of at
// most [MaxControlSize] bytes: a 12-byte [Header], then the body. Lists run to
// the end of the message; there is neither a count nor a trailer, so a message
// that ends in the middle of an entry is refused. A [SendData] is one SEND on a
// data channel, of at most [MaxSendData] bytes, with the same header.
//
// Scatter-gather lists ([ListDecoder]) and the messages of directed I/O that carry
// them are beside that: they travel between units on queue pairs of their own.
//
// # Decoding
//
// The peer is not trusted. Each Decode function takes one whole message and
// checks every size, count and sum in it before it returns; what it returns
// can be read without further checks of form. What only the receiver's state
// can tell (was this pool lent, is this element out) is left to the caller.
// Errors wrap one of the Err sentinels and name the offending value.
//
// A decoded message borrows the bytes it was decoded from and is valid until
// they change; a [ReceiveFilter] alone is copied. Nothing else is allocated
// unless decoding fails.
//
// # Encoding
//
// Each Append function appends one whole message to dst and returns the
// result, without allocating while dst has room. It writes what it is given:
// the caller keeps within the limits that the decoders enforce.
//
// All functions are safe for concurrent use; the package has no state.
package protocol
