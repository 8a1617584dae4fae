#!/bin/bash
# The test of a project that uses RDMA: it runs its program on two devices of a fabric.
set -euo pipefail
# shellcheck source=ci/softroce/topology.sh
. "$SPLITNIC_SOFTROCE_DIR/topology.sh"
fabric_up 2

# The environment of the script, and the directory for its results.
printf '%s\n' "$@" >"$SPLITNIC_WORK/arguments"

build/ports

# A program of rdma-core that exchanges messages over a reliable connection.
ibv_rc_pingpong -d snrxe0 -g "$(rxe_gid_index snrxe0)" -n 100 &
server=$!
# 18515 is 4853 in the kernel's hexadecimal table; 0A is LISTEN.
poll 20 grep -q ':4853 [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6
ibv_rc_pingpong -d snrxe1 -g "$(rxe_gid_index snrxe1)" -n 100 127.0.0.1
wait "$server"
fabric_down
