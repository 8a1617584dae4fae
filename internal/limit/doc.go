// Package limit limits the work and the log lines that peers can cause. A token bucket is
// always a [rate.Limiter]:
//
//   - [Keyed] has a bucket for each key, for work that a peer asks for
//   - [Queue] makes peers take turns at work that only a few may do at a time
//   - [Log] limits the lines in the log
//
// Functions that do not wait get the time from the caller, so that tests need no clock.
// Other limits exist where these cannot be used, and the reason is given there: the number of
// pending connections (package session), the rates of frames (package iounit).
//
// The following limiters have no key of this package. Each belongs to an object of one
// session or process and ends with it:
//
//   - package session: heartbeats, messages about direct connections, and messages
//     about draining, each of one bootstrap connection; its reader waits, so that the
//     peer's own send queue fills
//   - package session: the processor time of all handshakes together, which is the
//     budget of a Queue
//   - package messaging: requests that a Conn answers by itself, pools lent on request,
//     and the cost of the peer's pools, each of one session; the policy limits the number of
//     sessions
//   - package iounit: the announcements of one host, and the markers of one LAN
//     interface; excess ones are dropped or delayed, and not charged to a key
//   - package host: requests of one direct connection, from another host
//   - cmd/splitnic, package scrape: connections and requests of all scrapers together,
//     before they are authenticated
package limit
