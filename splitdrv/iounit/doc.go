// Package iounit is the I/O unit module driver: it owns a network card and shares it among
// hosts. Each host has its own session, channels (package messaging) and LAN interface
// (package lan), so that a slow or hostile host does not affect the others.
//
// # A session, in order
//
//  1. the listener delivers a host that has authenticated and sent its hello
//  2. an older session of the same host is ended, and waited for
//  3. transfer mode, MAC address and queues are chosen within the policy, and the host's LAN
//     interface is opened with that address
//  4. messaging.New creates the queue pairs and posts their receives
//  5. Welcome sends their addresses to the host, and returns those of the host
//  6. Connect, then Ready, which waits until the host's queue pairs are connected too
//  7. StartControl and StartData: requests are answered, and the pools are lent; changes of
//     the link and MTU are sent to the host
//
// From then on the host's requests change its LAN interface (services). Each frame is
// checked against rules that follow from the policy and the requests (package guard).
//
// # Files
//
// References between files run down this list:
//
//	serve, status           the steps of a session; the status
//	drain, govern           commands to a running I/O unit
//	unit, roster            the list of sessions
//	services, announce      requests of a host, and its LAN interface
//	setup                   limits of what a host gets
//	direct, directstatus    direct connections between hosts
//	addresses, host         MAC addresses and identities of hosts
//	tallies                 counters
//	config, ending, admission
//
// # The end
//
// A session ends when the host sends a bye or dies (the bootstrap connection breaks), when a
// queue pair fails, when the host is silent or breaks the protocol, or when the context is
// done. The workers stop first, then the memory is deregistered, then the LAN interface is
// removed.
package iounit
