// Package hostiletest has a peer that misbehaves on purpose, and a test suite in which it attacks
// sessions: everything that package messaging refuses, in every transfer mode, on any fabric that a
// test provides.
//
// An [Attack] is one thing that a peer can do wrong, with the expected result: the session ends
// with the rule that was broken, or the RDMA device refuses, or nothing happens. The tests of this
// package make a session for each attack, and have more attacks, which need a session in the same
// process. They also check that no frame of the attacker is delivered, that other sessions on the
// same device go on, and that nothing is left behind. Unit tests use memory as the fabric, and
// TestRDMAHostile uses Soft-RoCE.
//
// A [Peer], made of bare queue pairs ([Queues]), can be used alone in tests that reach the session in
// other ways, for example in a process of the product.
package hostiletest
