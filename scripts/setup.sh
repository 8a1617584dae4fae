#!/bin/bash
# setup.sh [--check] [build] [test] [demo] [bench] [packages] [vm] [pods] [softroce]
#
# Installs the Debian or Ubuntu packages that the named groups need (build, test,
# demo and bench unless some are named). Run by root it installs what is missing, otherwise
# it prints the command to type. Silent when nothing is missing. --check never
# installs; it prints what is missing and exits with 1 if that is anything.
# shellcheck disable=SC2034 # the groups are read by name
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Compiling, the linked library, and unpacking what is downloaded.
build=(gcc libc6-dev make git ca-certificates pkg-config libibverbs-dev)

# Running every layer of tests, with the guest they need where the kernel has
# no Soft-RoCE.
test=(
	rdma-core ibverbs-providers ibverbs-utils perftest
	iproute2 ethtool iputils-ping iperf3 nftables tcpdump tshark procps util-linux rpm
	dnsmasq-base udhcpc curl openssl python3-pyverbs systemd dbus-daemon
	qemu-system-x86 busybox cpio kmod xz-utils zstd debian-archive-keyring
	dpdk-dev tmux
	shellcheck
)

# The demonstration: a LAN with an address server behind the I/O unit.
demo=(
	rdma-core ibverbs-providers ibverbs-utils perftest
	iproute2 ethtool iputils-ping iperf3 tcpdump curl procps
	dnsmasq-base udhcpc
	qemu-system-x86 busybox cpio kmod xz-utils zstd
)

# The benchmarks: tools to measure with, networks to compare with.
bench=(
	rdma-core ibverbs-providers ibverbs-utils perftest
	iproute2 iputils-ping iperf3 procps wireguard-tools
	qemu-system-x86 busybox cpio kmod xz-utils zstd
)

# Programs that tests run and nobody is to install for them, because that would start
# services on this machine.
unpacked=(prometheus network-manager ifupdown)

# The harness alone, for other projects. They are there only when they are asked for,
# as the next ones are.
softroce=(
	rdma-core ibverbs-providers ibverbs-utils iproute2 kmod procps util-linux
	qemu-system-x86 busybox cpio xz-utils zstd debian-archive-keyring
)

# Packages for another architecture, and trying them in a clean root of Debian.
packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross mmdebstrap debian-archive-keyring rpm)

# libvirt, without what starts it as a service.
vm=(libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients)

# Container runtimes. Where systemd runs, this starts containerd and the socket of podman;
# the tests have their own.
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

# A guest needs qemu for this machine's own architecture; on others than x86
# the tests run natively.
command -v dpkg-query >/dev/null 2>&1 || die "this is not Debian or Ubuntu: install the likes of: ${wanted[*]}"
arch=$(dpkg --print-architecture)

# installed PACKAGE reports whether PACKAGE is there and set up.
installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
while read -r p; do
	case $p in
	qemu-system-x86) if [ "$arch" != amd64 ]; then continue; fi ;;
	# The two exclude each other; either will do.
	busybox) if installed busybox-static; then continue; fi ;;
	esac
	installed "$p" || missing+=("$p")
done < <(printf '%s\n' "${wanted[@]}" | sort -u)

# Go itself is too old in these distributions; it comes from go.dev.
for g in "${groups[@]}"; do
	if [ "$g" = build ] && ! command -v go >/dev/null 2>&1; then
		say "setup: no go command: install Go (go.mod names the version) from https://go.dev/dl/ and add its bin directory to PATH"
	fi
done

# unpack_programs is the end of a set-up. Tests are skipped that do not find a program.
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
# install_missing runs apt-get with its output in log.
install_missing() {
	apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
# Most often the index is there already; when it is missing or too old, the
# first try fails quickly.
if ! install_missing; then
	if ! apt-get -qq -o DPkg::Lock::Timeout=120 update >"$log" 2>&1 || ! install_missing; then
		tail -n 20 "$log" >&2
		die "apt-get cannot install ${missing[*]}: see its last lines above; is there a network, and are the package sources enabled?"
	fi
fi
unpack_programs
say "setup: done"
