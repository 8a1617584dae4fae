// Package attacks has hostile hosts, and tests that let them attack an I/O unit: the product as its
// users run it, on RDMA devices, with an honest host that must not be affected. docs/attacks.md
// lists which test tries what, what refuses it, and where it is counted.
//
// A hostile host consists of a bootstrap connection ([Connection]) and of bare queue pairs
// ([hostiletest.Queues]), which execute the attacker's requests regardless of the protocol. A
// [Session] is both, after a correct handshake. [Classes] are attacks of any duration: tests run
// them for a while, and `make bench-attacks` measures their cost for others.
package attacks
