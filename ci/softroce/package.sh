#!/bin/bash
# package.sh DIRECTORY BINARY [ARGS...]
#
# Called by ci/softroce/run for exec: runs the test binary of one package, in its
# directory, with its own fabric. Also fails if the tests leave objects behind.
set -uo pipefail
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh

[ $# -ge 2 ] || { echo "usage: package.sh DIRECTORY BINARY [ARGS...]" >&2; exit 2; }
SPLITNIC_BIN=$PWD/build/splitnic
export SPLITNIC_BIN
cd "$1" || exit 2
shift
# Modules that a guest's kernel cannot request from another network namespace.
modprobe -a tun macvtap veth 8021q 2>/dev/null

before=$(mktemp)
# Most packages need two devices; testdata/fabric-ports has another number.
ports=2
if [ -e testdata/fabric-ports ]; then read -r ports <testdata/fabric-ports; fi
fabric_up "$ports" || { echo "package.sh: no fabric"; exit 1; }
snapshot >"$before"
rc=0
"$@" </dev/null || rc=$?
leaks "$before" || rc=1
fabric_down || rc=1
rm -f "$before"
exit "$rc"
