#!/bin/bash
# clean.sh DIR ROOT PACKAGES [CGROUP]
#
# Makes a machine of a clean root directory of Debian, in the mount and PID
# namespaces that this script is started in: ROOT, which stays as it is, and what
# is changed of it in memory, mounted at DIR. PACKAGES can be seen at /packages.
# With CGROUP it boots the root directory's systemd, whose processes are in that
# control group; else its first process does nothing.
set -euo pipefail
dir=$1 root=$2 packages=$3
if [ $# = 4 ]; then
	# What is the root of a cgroup namespace is where the process is that makes it.
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
	# What asks for a terminal, or for the network to update Debian.
	for unit in getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer systemd-logind.service; do
		ln -sf /dev/null "etc/systemd/system/$unit"
	done
fi

pivot_root . .
umount -l .
cd /
if [ -z "${boot:-}" ]; then exec sleep infinity; fi
# systemd keeps the mounts of services apart by how they spread.
mount --make-rshared /
hostname clean
export container=splitnic
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=journal
