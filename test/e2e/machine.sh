#!/bin/bash
# machine.sh DIR CHECKOUT CGROUP
#
# Boots systemd as the first process of the PID namespace in which this script starts: a
# machine with this machine's kernel, /usr and devices, and nothing else of it. Its root
# directory is in memory, mounted at DIR. CHECKOUT is mounted read-only. Its processes are
# in the control group CGROUP. It has systemd's own targets, the journal, and the files
# that are installed below /usr/local.
set -euo pipefail
root=$1 checkout=$2
if [ $# = 3 ]; then
	# The root of a cgroup namespace is the control group of the process that makes it.
	echo 0 >"$3/cgroup.procs"
	exec unshare --cgroup "$0" "$root" "$checkout"
fi

# read_only DIR: what is mounted there.
read_only() { mount -o remount,bind,ro "$1"; }

mount --make-rprivate /
mount -t tmpfs -o mode=0755 machine "$root"
cd "$root"
mkdir -p dev etc/systemd/system home proc root run sys tmp usr var/log var/tmp ."$checkout"
ln -s ../run var/run
for d in usr bin sbin lib lib32 lib64 libx32; do
	if [ -L "/$d" ]; then
		cp -P "/$d" .
	elif [ -d "/$d" ]; then
		mkdir -p "$d"
		mount --bind "/$d" "$d"
		read_only "$d"
	fi
done
mount -t tmpfs -o mode=0755 local usr/local
mount --bind "$checkout" ."$checkout"
read_only ."$checkout"
# As in any container with the machine's devices, systemd must not change the kernel's
# settings.
mount --rbind /dev dev
mount --bind /dev/null dev/console
mount -t proc proc proc
mount --bind proc/sys proc/sys
read_only proc/sys
mount -t sysfs -o ro sys sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs -o mode=0755 run run

for f in passwd group libibverbs.d; do
	if [ -e "/etc/$f" ]; then cp -r "/etc/$f" etc/; fi
done
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
printf '[Journal]\nStorage=volatile\nAudit=no\nReadKMsg=no\n' >etc/systemd/journald.conf
stock=etc/systemd/stock
mkdir -p $stock/sysinit.target.wants
for unit in {basic,local-fs,multi-user,network,paths,shutdown,slices,sockets,sysinit,timers,umount}.target \
	modprobe@.service systemd-journald.{service,socket}; do
	cp "lib/systemd/system/$unit" $stock/
done
ln -s ../systemd-journald.service $stock/sysinit.target.wants/

pivot_root . .
umount -l .
cd /
# systemd isolates the mounts of services by mount propagation.
mount --make-rshared /
hostname machine
export container=splitnic
export SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/systemd/system:/usr/local/lib/systemd/system:/$stock
export SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=journal
