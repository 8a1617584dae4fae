// Package e2e has the end-to-end tests. They see the product from outside, as a user does: they
// start the built binary, give it network namespaces with a network card and a LAN behind the
// card, use the netdevice with the tools of Linux, and read the output of `splitnic status --json`.
//
// The environment variable SPLITNIC_BIN names the binary; without it, build/splitnic of this
// checkout is used. Tests whose names begin with TestRDMA need the RDMA devices snrxe0 (for I/O
// units), snrxe1 (for hosts) and snrxe2 (for hosts on another device) of
// ci/softroce/topology.sh, which `scripts/test softroce` creates.
package e2e
