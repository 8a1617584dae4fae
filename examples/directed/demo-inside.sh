#!/bin/bash
# The part of demo.sh that runs with Soft-RoCE: as root, in the checkout.
set -euo pipefail
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

LOGS=$SPLITNIC_WORK
# The binary is not in the checkout: in a guest $SPLITNIC_WORK is another directory.
directed=$SPLITNIC_WORK/directed
nbd=/dev/nbd0
private=$(mktemp -d)
megabytes=8

step() { printf '\n# %s\n' "$*"; }

pids=()
# shellcheck disable=SC2317,SC2329 # called by the trap
finish() {
	local rc=$? i
	set +e
	if mountpoint -q "$private/mnt"; then umount "$private/mnt"; fi
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill "${pids[i]}" 2>/dev/null
		wait "${pids[i]}" || rc=1
	done
	fabric_down || rc=1
	rm -rf "$private"
	if [ "$rc" != 0 ]; then tail -n 5 "$LOGS"/*.log; fi
	exit $rc
}
trap finish EXIT

# play ROLE ARGS... plays a role in the background.
play() {
	"$directed" "$@" 2>"$LOGS/$1.log" &
	pids+=($!)
}

listens() { [ -n "$(ss -Hltn "sport = :$1")" ]; }
served() { [ -e "/sys/block/${nbd##*/}/pid" ] && [ "$(cat "/sys/block/${nbd##*/}/size")" != 0 ]; }

# wire I prints the number of bytes that port I of the fabric has sent and received.
wire() {
	local rx tx
	read -r rx <"/sys/class/net/sr$1/statistics/rx_bytes"
	read -r tx <"/sys/class/net/sr$1/statistics/tx_bytes"
	echo $((rx + tx))
}

step "Soft-RoCE: three RDMA devices on one switch, for requester, owner and I/O unit"
fabric_up 3 || die "no RDMA fabric"
rdma link show
modprobe -a nbd ext4 || die "the kernel has no module nbd or ext4"

step "the I/O unit has a disk, the owner directs the I/O unit, the requester has $nbd"
truncate -s 64M "$private/disk"
play unit -d snrxe2 -listen 127.0.0.1:18516 "$private/disk"
poll 20 listens 18516 || die "no I/O unit"
play owner -d snrxe1 -listen 127.0.0.1:18517 127.0.0.1:18516
poll 20 listens 18517 || die "no owner"
play requester -d snrxe0 -nbd "$nbd" 127.0.0.1:18517
poll 20 served || die "no $nbd"
lsblk "$nbd"

before=("$(wire 0)" "$(wire 1)" "$(wire 2)")
step "mkfs.ext4 $nbd, mount it, write $megabytes MiB"
mkfs.ext4 -q "$nbd"
mkdir "$private/mnt"
mount "$nbd" "$private/mnt"
head -c ${megabytes}M /dev/urandom >"$private/data"
cp "$private/data" "$private/mnt/data"
umount "$private/mnt"

step "mount it again and compare"
blockdev --flushbufs "$nbd"
mount -o ro "$nbd" "$private/mnt"
cmp "$private/data" "$private/mnt/data" || die "what is read is not what was written"
ls -l "$private/mnt/data"
umount "$private/mnt"
cmp "$nbd" "$private/disk" || die "the block device is not the disk of the I/O unit"
echo "the block device and the I/O unit's disk have the same contents"

step "bytes on the wire of each port"
names=(requester owner "I/O unit")
for i in 0 1 2; do
	bytes[i]=$(($(wire $i) - before[i]))
	printf '%-10s %12d\n' "${names[i]}" "${bytes[i]}"
done
[ $((bytes[1] * 10)) -lt $((megabytes << 20)) ] || die "data have passed through the owner"
echo "no data passed through the owner: its bytes are the requests and their answers"
