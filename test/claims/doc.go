// Package claims shows, claim by claim and mechanism by mechanism, that the driver does what the
// source documents describe. docs/claims lists the tests of each claim.
//
// Each test has one body and runs on two fabrics: TestClaim… in memory, in every run of the unit
// tests, and TestRDMAClaim… through libibverbs on two Soft-RoCE devices. The devices are wrapped: a
// trace records all posts to queue pairs and all completions without changing them, and the tests
// read the trace. The tests use the counters of the code under test only to know when to read the
// trace.
package claims
