#!/bin/bash
# notices.sh VERSION DIRECTORY PROGRAM...
#
# Writes to DIRECTORY what is handed on with the programs: THIRD-PARTY-NOTICES, with the
# licences and notices of all linked modules, and for each program a bill of materials with
# licences (CycloneDX), PROGRAM.cdx.json. It builds its tools for this machine.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if [ $# -lt 3 ]; then DIE_STATUS=2 die "usage: notices.sh VERSION DIRECTORY PROGRAM..."; fi
version=$1 dir=$2
shift 2

cyclonedx=v1.10.0
native=$(go env GOHOSTARCH)

mkdir -p "$dir"
# The bills name the tool with its hash, so its bytes are the same everywhere too.
tool=$(GOARCH=$native CGO_ENABLED=0 GOFLAGS=-trimpath tool cyclonedx-gomod "$cyclonedx" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod)
for program in "$@"; do
	"$tool" bin -json -std -short-purls -noserial -notimestamp -version "$version" -output "$dir/${program##*/}.cdx.json" "$program"
done
# It looks at what is linked for GOARCH, and runs here.
collector=$(mktemp)
trap 'rm -f "$collector"' EXIT
GOARCH=$native CGO_ENABLED=0 go build -o "$collector" ./scripts/notices
"$collector" "$dir/THIRD-PARTY-NOTICES" "$dir"/*.cdx.json
