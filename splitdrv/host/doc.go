// Package host is the host module driver: it gives the machine a netdevice, and moves its
// frames to and from an I/O unit through package messaging.
//
// The netdevice outlives every session. Without a session it has no carrier, and keeps its
// addresses and routes. During a session its offloads and carrier follow the I/O unit.
//
// # Settings of the netdevice
//
// The administrator, programs that join groups or capture frames, and stacked devices change
// the settings of the netdevice. The host requests the same settings from the I/O unit for
// its LAN interface, in each session. Where possible, a setting that the I/O unit refuses is
// set back; Status has the setting and the reason.
//
//   - MAC address: that of the I/O unit, or of the configuration, until the administrator
//     sets another one. The host requests this one in later hellos too, until an I/O unit
//     changes the address or refuses a hello because of it.
//   - MTU: that of the I/O unit, which follows its network card, up to Config.MaxMTU. An MTU
//     that the administrator sets is an upper limit from then on: the netdevice has the
//     smaller of the two, and changes again with the card.
//   - Up and down, receive filter, VLANs: those of the netdevice. If a bridge, a macvlan or a
//     capture may use any VLAN, the host requests all VLANs. If promiscuous mode is refused,
//     it requests all multicast frames.
//
// Reset resets what the administrator has set. Package mirror decides all this; package host
// reads and changes the netdevice and sends the requests to the I/O unit.
//
// # A session, in order
//
//  1. session.Dial and Hello: identity, requested and granted settings
//  2. messaging.New creates the queue pairs and posts their receives
//  3. Accept sends their addresses to the I/O unit and waits until its queue pairs are ready
//  4. Connect, then Ready: from now on either side may send
//  5. StartControl starts the control channel, and Reach waits for an answer over it. A
//     session on standby stays here until it is used
//  6. the netdevice gets the granted MAC address, MTU and offloads, and the carrier of the I/O
//     unit's link, which it follows from now on
//  7. StartData lends the pools and moves frames
//
// Package discovery lists the I/O units. Package uplink decides which one is used, and when;
// race.go, standby.go and serve.go carry that out. Package direct makes direct connections to
// other hosts.
//
// A session ends when the I/O unit sends a bye or dies (the bootstrap connection breaks),
// when a queue pair fails, when the peer is silent, or when the context is done. The
// carrier is removed first, then the workers stop, then the memory is released.
//
// # Files
//
// References between files run down this list:
//
//	connect, status, serve, renew, commands   Run and other exported methods
//	host, vhostuser, race, standby            choice of the session
//	open, follow, peerrequests                one session
//	netdev, failures, sessions, config        shared state
//	netdevice, reason, switchrequest, attachment
package host
