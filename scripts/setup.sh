#!/bin/bash
# setup.sh [--check] [build] [test] [demo] [bench] [packages] [vm] [pods] [softroce]
#
# Installs the Debian or Ubuntu packages that the named groups need (by default build,
# test, demo and bench). As root it installs missing packages, otherwise it prints the
# command to type. It prints nothing if no package is missing. --check never installs; it
# prints the missing packages and exits with 1 if there are any.
# shellcheck disable=SC2034 # the groups are read by name
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# To compile, with the linked library, and to unpack downloads.
build=(gcc libc6-dev make git ca-certificates pkg-config libibverbs-dev)

# To run all layers of tests, with a guest if the kernel has no Soft-RoCE.
test=(
	rdma-core ibverbs-providers ibverbs-utils perftest
	iproute2 ethtool iputils-ping iperf3 nftables tcpdump tshark procps util-linux e2fsprogs rpm
	dnsmasq-base udhcpc curl openssl python3-pyverbs python3-openssl python3-cryptography
	systemd dbus-daemon
	qemu-system-x86 busybox cpio kmod xz-utils zstd debian-archive-keyring
	dpdk-dev tmux
	shellcheck lintian rpmlint
)

# For the demonstration: a LAN with a DHCP server behind the I/O unit.
demo=(
	rdma-core ibverbs-providers ibverbs-utils perftest
	iproute2 ethtool iputils-ping iperf3 tcpdump curl procps
	dnsmasq-base udhcpc
	qemu-system-x86 busybox cpio kmod xz-utils zstd
)

# For the benchmarks: measuring tools, and networks to compare with.
bench=(
	rdma-core ibverbs-providers ibverbs-utils perftest
	iproute2 iputils-ping iperf3 procps wireguard-tools
	qemu-system-x86 busybox cpio kmod xz-utils zstd
)

# Programs that tests run from an unpacked package: to install these packages would start
# services on this machine.
unpacked=(prometheus network-manager ifupdown)

# The harness alone, for other projects. This group and those below are installed only if
# they are named.
softroce=(
	rdma-core ibverbs-providers ibverbs-utils iproute2 kmod procps util-linux
	qemu-system-x86 busybox cpio xz-utils zstd debian-archive-keyring
)

# To build packages for another architecture, and to test them in a clean root of Debian.
packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross mmdebstrap debian-archive-keyring rpm)

# libvirt, without the packages that start it as a service.
vm=(libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients)

# Container runtimes. With systemd, the installation starts containerd and the socket of
# podman; the tests start their own.
pods=(podman containerd runc containernetworking-plugins)

check='' groups=()
for a in "$@"; do
	case $a in
	--check) check=1 ;;
	build | test | demo | bench | packages | vm | pods | softroce) groups+=("$a") ;;
	*) DIE_STATUS=2 die "usage: setup.sh [--check] [build] [test] [demo] [bench] [packages] [vm] [pods] [softroce]" ;;
	esac
done
if [ ${#groups[@]} = 0 ]; then groups=(build test demo bench); fi

wanted=()
for g in "${groups[@]}"; do
	declare -n list=$g
	wanted+=("${list[@]}")
done

# A guest needs qemu for this machine's architecture. On other architectures than x86 the
# tests run natively.
command -v dpkg-query >/dev/null 2>&1 || die "this is not Debian or Ubuntu: install the likes of: ${wanted[*]}"
arch=$(dpkg --print-architecture)

# installed PACKAGE reports whether PACKAGE is installed and configured.
installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
while read -r p; do
	case $p in
	qemu-system-x86) if [ "$arch" != amd64 ]; then continue; fi ;;
	# These two exclude each other; either is sufficient.
	busybox) if installed busybox-static; then continue; fi ;;
	esac
	installed "$p" || missing+=("$p")
done < <(printf '%s\n' "${wanted[@]}" | sort -u)

# Go in these distributions is too old; it comes from go.dev.
for g in "${groups[@]}"; do
	if [ "$g" = build ] && ! command -v go >/dev/null 2>&1; then
		say "setup: no go command: install Go (go.mod names the version) from https://go.dev/dl/ and add its bin directory to PATH"
	fi
done

# unpack_programs is the last step. Tests whose program is missing are skipped.
unpack_programs() {
	case " ${groups[*]} " in
	*" test "*) "$(dirname "${BASH_SOURCE[0]}")/unpack" "${unpacked[@]}" || say "setup: going on without ${unpacked[*]}" ;;
	esac
}

if [ ${#missing[@]} = 0 ]; then
	[ -n "$check" ] || unpack_programs
	exit 0
fi
if [ -n "$check" ]; then
	say "setup: missing: ${missing[*]}"
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	say "setup: missing packages; type: sudo apt-get install -y --no-install-recommends ${missing[*]}"
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "setup: installing ${missing[*]}"
# install_missing runs apt-get, with its output in log.
install_missing() {
	apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
# The package index usually exists; if it is missing or too old, the first try fails
# quickly.
if ! install_missing; then
	if ! apt-get -qq -o DPkg::Lock::Timeout=120 update >"$log" 2>&1 || ! install_missing; then
		tail -n 20 "$log" >&2
		die "apt-get cannot install ${missing[*]}: see its last lines above; is there a network, and are the package sources enabled?"
	fi
fi
unpack_programs
say "setup: done"
