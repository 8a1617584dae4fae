// Package limit bounds what peers can cause. A token bucket is always a
// [rate.Limiter]:
//
//   - [Keyed] has one for each key, for work that a peer asks for
//   - [Queue] makes peers take turns at work of which little is done at a time
//   - [Log] bounds the lines in the log
//   - [Spend] is for a bucket that has no key
//
// The time is the caller's where nothing waits, so that tests need no clock.
// Other bounds exist where these cannot be used, and say why there: the pending
// connections (package session), the rates of frames (package iounit).
//
// These limiters are used without a key of this package, because each belongs to an
// object of one session or process and ends with it:
//
//   - package session: heartbeats, messages about direct connections, and messages
//     about draining, each of one bootstrap connection; its reader waits, so that the
//     peer's own send queue fills
//   - package session: the processor time of all handshakes together, which is the
//     budget of a Queue
//   - package messaging: requests that a Conn answers by itself, pools lent on request,
//     and the cost of the peer's pools, each of one session; the policy bounds their number
//   - package iounit: the announcements of one host, and the markers of one LAN
//     interface, which are dropped or delayed and not charged to a key
//   - package host: requests of one direct connection, from another host
//   - cmd/splitnic, package scrape: connections and requests of all scrapers together,
//     before they are authenticated
package limit
