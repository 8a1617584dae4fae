// Package attacks holds hostile hosts and the tests that let them at an I/O
// unit: the product as its users run it, on RDMA devices, with an honest host
// beside that must not notice. docs/attacks.md says which test tries what, what
// refuses it, and where it is counted.
//
// A hostile host is made of a bootstrap connection ([Connection]) and of bare
// queue pairs ([Queues]), which do what they are told and not what the protocol
// says; a [Session] is both, after a handshake as it should be. [Classes] are
// attacks that go on for as long as one likes: tests let them run for a while,
// and `make bench-attacks` measures what they cost others.
package attacks
