// Package claims shows, claim by claim and mechanism by mechanism, that the
// driver does what the source documents describe. docs/claims lists which test
// shows what.
//
// Each test has one body and runs on two fabrics: TestClaim… in memory, in every
// run of the unit tests, and TestRDMAClaim… through libibverbs on two Soft-RoCE
// devices. The devices are wrapped: a trace records what is posted to which
// queue pair and what completes, without changing any of it, and the tests
// read the trace. The counters of the code under test only tell when to look.
package claims
