// Package iounit is the I/O unit module driver: it owns a network card and
// shares it among hosts. Each host has a session, a set of channels (package
// messaging) and a LAN interface of its own (package lan), so that neither a
// slow host nor a hostile one is any of the others' business.
//
// # A session, in order
//
//  1. the listener delivers a host that has proved who it is and said hello
//  2. an older session of the same host is ended and waited for
//  3. transfer mode, MAC address and queues are chosen within the policy, and
//     the host's LAN interface is opened with that address
//  4. messaging.New makes the queue pairs and posts their receives
//  5. Welcome tells the host their addresses and returns the host's
//  6. Connect, then Ready, which waits until the host's are connected too
//  7. Start lends the pools; changes of the link and MTU are passed on
//
// From then on the host's requests change its LAN interface (services), and each
// of its frames is judged by the rules that follow from policy and requests
// (policed, rules). The rules are one immutable value behind an atomic pointer:
// whoever changes them never stops whoever reads them.
//
// # Files
//
// References between them run down this list:
//
//	serve, status              a session's steps; what is shown
//	drain, govern, handlers    what is asked of a running I/O unit, and changed
//	unit, roster, attachment   which sessions there are
//	services, announce         what one of them does on the LAN
//	direct                     who has direct connections
//	addresses, host            who has which address, and who that is
//	policed, rules, bucket     which frames pass, and how many
//	config, ending, admission, errors
//
// # The end
//
// It ends when the host says bye or dies (the bootstrap connection breaks),
// when a queue pair fails, when the host is silent or breaks the protocol, or
// by the context. The workers end first, then the memory is deregistered, then
// the LAN interface goes.
package iounit
