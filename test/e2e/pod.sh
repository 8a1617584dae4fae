#!/bin/bash
# pod.sh ROOT BINARY FILES VOLUME... -- COMMAND...
#
# Runs COMMAND like kubelet in a privileged container of a pod with the node's network: in
# the mount, PID and IPC namespaces in which this script starts, with the read-only root
# directory ROOT. ROOT is in memory. It has BINARY as /usr/local/bin/splitnic, and the
# files of this machine that the file FILES names. A VOLUME is SOURCE:TARGET,
# SOURCE:TARGET:ro, or SOURCE:TARGET:slave. In the last one, later mounts of the node
# appear.
set -euo pipefail
root=$1 binary=$2 files=$3
shift 3

mount --make-rslave /
mount -t tmpfs -o mode=0755 image "$root"
cd "$root"
for d in bin sbin lib lib32 lib64 libx32; do
	if [ -L "/$d" ]; then
		mkdir -p "usr/$d"
		cp -P "/$d" .
	fi
done

tar -C / -c --no-recursion -T "$files" | tar -x --keep-directory-symlink
install -D -m 0755 "$binary" usr/local/bin/splitnic

mkdir -p dev proc sys tmp run
mount -t tmpfs -o mode=0755 devices dev
for d in null zero full random urandom; do
	: >dev/$d
	mount --bind /dev/$d dev/$d
done
mount -t proc proc proc
mount -t sysfs sysfs sys
while [ "$1" != -- ]; do
	IFS=: read -r source target access <<<"$1"
	if [ -d "$source" ]; then
		mkdir -p ".$target"
	else
		mkdir -p ".${target%/*}"
		: >".$target"
	fi
	mount --rbind "$source" ".$target"
	if [ "$access" != slave ]; then mount --make-rprivate ".$target"; fi
	if [ "$access" = ro ]; then mount -o remount,bind,ro ".$target"; fi
	shift
done
shift
mount -o remount,bind,ro .
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot . "$@"
