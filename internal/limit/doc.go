// Package limit bounds what peers can cause. A token bucket is always a
// [rate.Limiter]:
//
//   - [Keyed] has one for each key, for work that a peer asks for
//   - [Queue] has peers take turns at work of which little is done at a time
//   - [Log] bounds the lines in the log
//   - [Spend] is for a bucket that has no key
//
// The time is the caller's where nothing waits, so that tests need no clock.
// Other bounds exist where these cannot be used, and say why there: the pending
// connections (package session), the rates of frames (package iounit).
package limit
