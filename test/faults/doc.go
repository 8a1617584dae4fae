// Package faults contains the tests with two machines, which are two Soft-RoCE guests connected by
// a virtual cable. One is the host, the other one is the I/O unit and its LAN.
//
// The tests run outside of both machines and inject faults: the cable is pulled, packets are lost,
// delayed, duplicated or corrupted, a machine is paused or loses its power, a process is killed, a
// disk is full, a clock is set. The tests check what a user would notice: a ping, the contents of a
// TCP connection, the carrier, the status, and what is left behind afterwards.
//
// ci/softroce/run boots each machine, once for all tests, and again after a test has killed the
// machine. An agent, which is the test binary itself, runs on each machine. The tests call the
// agent by net/rpc through a serial port. The cable of each machine ends in the test process, so
// that either machine can die and come back. The tests control qemu by QMP.
//
// `make test` runs TestMachines…, as a separate layer. `make test-faults` runs TestFaults…, which
// are further tests.
package faults
