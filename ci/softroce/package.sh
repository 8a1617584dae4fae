#!/bin/bash
# package.sh DIRECTORY BINARY [ARGS...]
#
# Run by ci/softroce/run for exec: the test binary of one package, in its
# directory, with a fabric of its own. It fails as well if the tests leave
# something behind.
set -uo pipefail
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh

[ $# -ge 2 ] || { echo "usage: package.sh DIRECTORY BINARY [ARGS...]" >&2; exit 2; }
SPLITNIC_BIN=$PWD/build/splitnic
export SPLITNIC_BIN
cd "$1" || exit 2
shift
# Modules that the kernel of a guest cannot ask for from another namespace.
modprobe -a tun macvtap veth 8021q 2>/dev/null

before=$(mktemp)
# Most packages need two devices; testdata/fabric-ports says how many it has to be.
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
