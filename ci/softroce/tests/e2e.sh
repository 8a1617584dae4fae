#!/bin/bash
# e2e.sh BINARY [go test flags...]
#
# Run by ci/softroce/run. BINARY is made by `go test -c -o BINARY ./test/e2e`;
# it runs the product's binary, $SPLITNIC_BIN or build/splitnic, on a fabric of
# two devices. Without flags, those tests run that need it. Fails if a test
# fails, or leaves something behind.
set -uo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=ci/softroce/topology.sh
. "$here/../topology.sh"

[ $# -ge 1 ] || { echo "usage: e2e.sh BINARY [go test flags...]" >&2; exit 2; }
binary=$(readlink -f "$1") || exit 2
shift
[ $# -gt 0 ] || set -- -test.run='^Test(RDMA|Netns)'

export SPLITNIC_REQUIRE=${SPLITNIC_REQUIRE:-root,tun,rdma,tools,splitnic}
SPLITNIC_BIN=$(readlink -f "${SPLITNIC_BIN:-build/splitnic}") || exit 2
export SPLITNIC_BIN
# Modules that the kernel of a guest cannot ask for from another namespace.
modprobe -a tun macvtap veth 8021q 2>/dev/null

fabric_up 2 || { echo "e2e.sh: no fabric" >&2; exit 1; }
failed=0
before=$(mktemp)
snapshot >"$before"
(cd "$here/../../../test/e2e" && "$binary" -test.v -test.timeout=10m "$@") || failed=1
leaks "$before" || failed=1
sockets=$(find /run/splitnic -type s 2>/dev/null)
if [ -n "$sockets" ]; then
	echo "left behind: $sockets" >&2
	failed=1
fi
fabric_down || failed=1
exit "$failed"
