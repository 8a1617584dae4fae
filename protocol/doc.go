// Package protocol is the wire format between a host and an I/O unit: the control messages, which
// are SENDs on the control channel, the immediate data of the RDMA writes on the data channels, and
// the SendData messages that replace the writes in some transfer modes. It also packs work request
// identifiers. docs/protocol.md describes the format for authors of other implementations.
//
// All integers on the wire are big-endian. A control message is one SEND of at most
// [MaxControlSize] bytes: a 12-byte [Header], then the body. A list extends to the end of the
// message, without a count or a trailer. A message that ends in the middle of an entry is an error.
// A [SendData] is one SEND on a data channel, of at most [MaxSendData] bytes, with the same header.
//
// Scatter-gather lists ([ListDecoder]) and the messages of directed I/O with them are separate: they
// are sent between units on their own queue pairs.
//
// # Decoding
//
// The peer is not trusted. Each Decode function decodes one whole message and checks every size,
// count and sum in it. Its result needs no further checks of form. The caller has to check what
// depends on the receiver's state: whether a pool was lent, or an element is in use. Errors wrap one
// of the Err variables and name the invalid value.
//
// A decoded message borrows the bytes it was decoded from, and is valid until they change. Only a
// [ReceiveFilter] is copied. Nothing else is allocated unless decoding fails.
//
// # Encoding
//
// Each Append function appends one whole message to dst and returns the result. It does not allocate
// if dst has room. It does not check its arguments: the caller has to keep the limits that the
// decoders enforce.
//
// All functions are safe for concurrent use. The package has no state.
package protocol
