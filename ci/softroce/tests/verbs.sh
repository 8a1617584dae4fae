#!/bin/bash
# verbs.sh DIR [go test flags...]
#
# Run by ci/softroce/run. DIR holds test binaries made by `go test -c`:
# verbs.test (unit, hardware and conformance tests of package verbs) and
# pingpong.test (the example against the pingpong programs of rdma-core).
# Prints what they print; a binary that is missing or fails, fails the script.
set -uo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=ci/softroce/topology.sh
. "$here/../topology.sh"

[ $# -ge 1 ] || { echo "usage: verbs.sh DIR [go test flags...]" >&2; exit 2; }
dir=$(readlink -f "$1") || exit 2
shift

export SPLITNIC_REQUIRE=${SPLITNIC_REQUIRE:-root,rdma,tools}
fabric_up 2 || { echo "verbs.sh: no fabric" >&2; exit 1; }

# run_tests BINARY PACKAGE FLAGS... runs one binary where go test would.
run_tests() {
	local binary=$1 package=$2
	shift 2
	(cd "$here/../../../$package" && "$dir/$binary" -test.v -test.timeout=5m "$@")
}

failed=0
before=$(mktemp)
snapshot >"$before"
run_tests verbs.test verbs "$@" || failed=1
run_tests pingpong.test examples/pingpong "$@" || failed=1
leaks "$before" || failed=1
fabric_down || failed=1
exit "$failed"
