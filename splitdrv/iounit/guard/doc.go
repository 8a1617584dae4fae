// Package guard is what stands between a host and the LAN: a guard passes only the frames that the
// rules of the host permit, in both directions, and counts and explains those that it drops. Rules
// follow from the policy and the host's requests, and are an immutable value behind an atomic
// pointer, so that a change does not block readers.
//
// A frame is checked in a copy of its beginning, because the host may still change the frame. Frames
// beyond a host's rate wait where they are; those that a LAN copies to all its ports, beyond a rate
// of their own, are dropped. What a session owes when it ends is kept for the next one of its host.
//
// A guard also does what only a look at each frame can: it learns the stations of a bridge, samples
// the frames between hosts, and copies markers to all queues.
//
// # Files
//
// References between files run down this list:
//
//	guard                          all queues of a host's interface
//	policed, markers               frames between a host and the LAN
//	sampling, stations             frames between hosts; addresses that a bridge has learned
//	refusals                       counters, and why frames are dropped
//	rules, ipsource                which frames pass
//	account, bucket                and how many
package guard
