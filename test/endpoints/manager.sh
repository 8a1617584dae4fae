#!/bin/bash
# manager.sh DIR PROGRAM [ARGS...]
#
# Runs a program that manages the network, as the first process of a PID namespace, in a
# mount and a network namespace of its own. The configuration, state and buses of the
# machine are hidden. DIR/networkd has the configuration of systemd-networkd; its state is
# in DIR/netif. DIR/bus.conf, if it exists, is the configuration of the D-Bus to start.
set -euo pipefail
dir=$1
shift
mount --make-rprivate /
mount -t proc proc /proc
mount -o remount,bind,ro /sys # as in a container: nobody waits for udev
mount -t tmpfs -o mode=0755 run /run
mount -t tmpfs -o mode=0755 lib /var/lib
mkdir -p /run/systemd/network /run/systemd/netif /var/lib/NetworkManager "$dir/netif"
for d in /etc/systemd/network /usr/lib/systemd/network; do
	if [ -d "$d" ]; then mount -t tmpfs -o mode=0755 none "$d"; fi
done
if [ -d "$dir/networkd" ]; then
	cp "$dir"/networkd/* /run/systemd/network/
	chown systemd-network: "$dir/netif"
	mount --bind "$dir/netif" /run/systemd/netif
fi
if [ -e "$dir/bus.conf" ]; then
	export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$dir/bus
	exec 3< <(exec dbus-daemon --config-file="$dir/bus.conf" --nofork --nopidfile --print-address)
	read -r -u 3 _ # it listens
fi
ip link set lo up
exec "$@"
