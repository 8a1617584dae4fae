#!/bin/bash
# packages.sh DIR
#
# Run by ci/softroce/run for scripts/test. DIR holds test binaries made by
# `go test -c`, and the file packages: import path, directory, binary, and
# regular expression of the tests, on a line each. Every package gets a fabric
# of its own; one that leaves something behind has failed. Marks tell
# scripts/test where a package's output begins and how it ended.
set -uo pipefail
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh

[ $# = 1 ] || { echo "usage: packages.sh DIR" >&2; exit 2; }
dir=$(readlink -f "$1") || exit 2
SPLITNIC_BIN=$(readlink -f build/splitnic) || exit 2
export SPLITNIC_BIN
# Modules that the kernel of a guest cannot ask for from another namespace.
modprobe -a tun macvtap veth 8021q 2>/dev/null

# run_package DIRECTORY BINARY TESTS runs one package's tests.
run_package() {
	local before rc=0
	before=$(mktemp)
	fabric_up 2 || { echo "packages.sh: no fabric"; return 1; }
	snapshot >"$before"
	(cd "$1" && exec "$dir/$2" -test.v=test2json -test.timeout=30m -test.run="$3") </dev/null || rc=$?
	leaks "$before" || rc=1
	fabric_down || rc=1
	rm -f "$before"
	return "$rc"
}

failed=0
while read -r path directory binary tests; do
	printf '### package %s\n' "$path"
	rc=0
	run_package "$directory" "$binary" "$tests" || rc=$?
	# What a test wrote last need not end with a newline.
	printf '\n### status %s\n' "$rc"
	[ "$rc" = 0 ] || failed=1
done <"$dir/packages"
exit "$failed"
