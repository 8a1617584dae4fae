#!/bin/bash
# clean.sh DIR ROOT PACKAGES [CGROUP]
#
# Boots a clean root directory of Debian as a machine, in the mount and PID namespaces in
# which this script starts. ROOT does not change: changes are kept in memory, and the
# result is mounted at DIR. PACKAGES is mounted at /packages. With CGROUP it starts the
# systemd of the root directory, with its processes in that control group; otherwise its
# first process does nothing.
set -euo pipefail
dir=$1 root=$2 packages=$3
if [ $# = 4 ]; then
	# The root of a cgroup namespace is the control group of the process that makes it.
	echo 0 >"$4/cgroup.procs"
	boot=1 exec unshare --cgroup "$0" "$dir" "$root" "$packages"
fi

# read_only DIR: what is mounted there.
read_only() { mount -o remount,bind,ro "$1"; }

modprobe overlay 2>/dev/null || true
mount --make-rprivate /
mount -t tmpfs -o mode=0755 machine "$dir"
mkdir "$dir"/{upper,work,root}
mount -t overlay -o "lowerdir=$root,upperdir=$dir/upper,workdir=$dir/work" machine "$dir/root"
cd "$dir/root"
mkdir packages
mount --bind "$packages" packages
read_only packages
mount --rbind /dev dev
mount --bind /dev/null dev/console
mount -t proc proc proc
mount --bind proc/sys proc/sys
read_only proc/sys
mount -t sysfs -o ro sys sys
mount -t tmpfs -o mode=0755 run run
mount -t tmpfs tmp tmp
if [ -n "${boot:-}" ]; then
	mount -t cgroup2 cgroup sys/fs/cgroup
	tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
	printf '[Journal]\nStorage=volatile\nAudit=no\nReadKMsg=no\n' >etc/systemd/journald.conf
	# Units that ask for a terminal, or update Debian over the network.
	for unit in getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer systemd-logind.service; do
		ln -sf /dev/null "etc/systemd/system/$unit"
	done
fi

pivot_root . .
umount -l .
cd /
if [ -z "${boot:-}" ]; then exec sleep infinity; fi
# systemd isolates the mounts of services by mount propagation.
mount --make-rshared /
hostname clean
export container=splitnic
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=journal
