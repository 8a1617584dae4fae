#!/bin/bash
# demo.sh: a file system on a disk of another machine, which a third machine owns, on three
# Soft-RoCE devices: of this kernel, or of a virtual machine. Takes no arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

scripts/setup.sh build softroce
need go golang
need mkfs.ext4 e2fsprogs
work=$PWD/build/directed
rm -rf "$work"
mkdir -p "$work"
go build -trimpath -o "$work/directed" ./examples/directed
ci/softroce/prepare
rc=0
ci/softroce/run --timeout 300 --work "$work" examples/directed/demo-inside.sh || rc=$?
if [ "$rc" != 0 ]; then
	die "the demonstration failed with status $rc; the logs are in build/directed and build/softroce/last"
fi
