// Package hostiletest is a peer that misbehaves on purpose, and the suite that
// lets it at a session: everything that package messaging refuses, in every
// transfer mode, on whatever fabric the test brings.
//
// An [Attack] is one thing that a peer can do wrong, with what has to come of
// it: the session ends with the one rule that was broken, or the RDMA device
// refuses, or nothing happens. The tests here make a session for each attack, and
// also check that no frame of the attacker's got through, that other sessions on the
// same device carry on, and that nothing is left behind: over memory in unit tests
// and over Soft-RoCE in TestRDMAHostile.
//
// A [Peer] alone, made of bare queue pairs, is for tests that reach the session
// by other ways, such as a process of the product.
package hostiletest
