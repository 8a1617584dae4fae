// Package host is the host module driver: it gives the machine a netdevice and
// moves its frames to and from an I/O unit, by way of package messaging.
//
// The netdevice outlives every session. While there is none it has no carrier,
// and keeps its addresses and routes; offloads and carrier follow the I/O unit
// while there is one.
//
// # Who decides
//
// What is done with the netdevice the I/O unit is asked to do with its network
// card: by the administrator, by programs that join groups or capture, by
// devices stacked on it. Each session is told anew. What the I/O unit refuses
// is set back where that can be done, and Status says what and why.
//
//   - MAC address: the I/O unit's, or that of the configuration, until the
//     administrator sets another. That one is asked for in later hellos too; an
//     I/O unit that changes the address, or refuses a hello, ends that.
//   - MTU: the I/O unit's, which follows its network card, up to
//     Config.MaxMTU. One that the administrator sets is the most from then on:
//     the netdevice has the smaller of both, and more again when the card does.
//   - up and down, receive filter, VLANs: the netdevice's. Where a bridge, a
//     macvlan or a capture may use any VLAN, all are wanted. Where promiscuous
//     mode is wanted and refused, all multicast frames are wanted instead.
//
// Reset takes back what the administrator has set. Package mirror decides all that;
// this one reads the netdevice, changes it and asks the I/O unit.
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
// Package discovery says which I/O units there are, and package uplink decides with which
// one, and when; race, standby and serve carry that out.
//
// It ends when the I/O unit says bye or dies (the bootstrap connection breaks),
// when a queue pair fails, when the peer is silent, or by the context. The
// carrier goes first, then the workers, then the memory.
//
// # Files
//
// References between them run down this list:
//
//	connect, status, serve, renew, commands   what Run does, and what others ask
//	host, vhostuser, race, standby            which session is used
//	open, follow, peerrequests                one session
//	direct, link, directcommon                connections to other hosts
//	netdev, sessions, config, netdevice       what all of it works on
//	reason, switchrequest, directstatus, attachment, changes
package host
