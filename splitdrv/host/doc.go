// Package host is the host module driver: it gives the machine a netdevice and
// moves its frames to and from an I/O unit, by way of package messaging.
//
// The netdevice outlives every session. While there is none it has no carrier,
// and keeps its addresses and routes; MAC address, MTU, offloads and carrier
// follow the I/O unit while there is one.
//
// # A session, in order
//
//  1. session.Dial and Hello: who, what is wanted, what is granted
//  2. the netdevice takes the granted MAC address, MTU and offloads
//  3. messaging.New makes the queue pairs and posts their receives
//  4. Accept tells the I/O unit their addresses and waits until its are ready
//  5. Connect, then Ready: from here on either side may send
//  6. Start lends the pools; the carrier follows the I/O unit's link
//
// It ends when the I/O unit says bye or dies (the bootstrap connection breaks),
// when a queue pair fails, when the peer is silent, or by the context. The
// carrier goes first, then the workers, then the memory.
package host
