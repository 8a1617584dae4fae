// Package e2e holds the end-to-end tests: they see the product from outside,
// as its user does. They start the built binary, give it network namespaces
// with a network card and a LAN behind it, use its netdevice with the tools of
// Linux, and read what `splitnic status --json` prints.
//
// The environment variable SPLITNIC_BIN names the binary; without it,
// build/splitnic of this checkout is used. Tests that begin with TestRDMA need
// the RDMA devices snrxe0 (for I/O units), snrxe1 (for hosts) and snrxe2 (for hosts
// that are to be on a device of their own) of ci/softroce/topology.sh, which
// `scripts/test softroce` makes.
package e2e
