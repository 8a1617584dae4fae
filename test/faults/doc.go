// Package faults holds the tests with two machines: two Soft-RoCE guests, joined
// by a virtual cable. One is the host, the other one the I/O unit and its LAN.
//
// The tests run outside of both. They do to the machines what happens to
// machines: the cable is pulled, packets are lost, delayed, doubled, changed, one
// machine stands still or dies, a process is killed, a disk is full, a clock is
// set. What a user would notice is checked: a ping, the contents of a TCP
// connection, the carrier and the status, and what is left behind afterwards.
//
// Each machine is booted by ci/softroce/run, once for all tests, and again after
// a test has killed it. In it runs an agent, which is the test binary itself; the
// tests call it by net/rpc through a serial port. The cable ends here too, so
// that either machine can die and come back; qemu is controlled by QMP.
//
// TestMachines… are those that `make test` runs, in a layer of their own;
// TestFaults… are more of them, for `make test-faults`.
package faults
