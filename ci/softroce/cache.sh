# shellcheck shell=bash
# Where the guest's kernel and initial RAM disk are kept. Sourced by prepare
# and run, after scripts/lib.sh.
#
# Layout of the cache directory:
#
#	release                the kernel release in use, e.g. 6.1.0-56-amd64
#	RELEASE/complete       present when everything else under RELEASE is
#	RELEASE/vmlinux        the kernel as qemu boots it fastest
#	RELEASE/root           its modules, with modules.dep
#	RELEASE/initrd.HASH    HASH covers the files the RAM disk is made from
#	kvm                    what the last try of KVM found, and in which boot
#	lock                   held by whoever writes here

softroce_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(cd "$softroce_dir/../.." && pwd)

# PATH of an ordinary user lacks the directories of depmod and modprobe.
PATH=$PATH:/usr/sbin:/sbin

if [ -n "${SPLITNIC_CACHE:-}" ]; then
	cache=$SPLITNIC_CACHE
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
	cache=$XDG_CACHE_HOME/splitnic/softroce
elif [ -n "${HOME:-}" ] && [ -w "${HOME:-}" ]; then
	cache=$HOME/.cache/splitnic/softroce
else
	cache=$checkout/build/softroce/cache
fi

# cache_recipe prints a hash of the files that decide what the RAM disk holds.
cache_recipe() {
	cat "$softroce_dir/prepare" "$softroce_dir/init" | sha256sum | cut -c1-16
}

# cache_load sets release, kernel, initrd and modules to what the cache
# holds; it fails when the cache is missing or older than the recipe.
cache_load() {
	local recipe
	release=$(cat "$cache/release" 2>/dev/null) || return 1
	[ -n "$release" ] && [ -e "$cache/$release/complete" ] || return 1
	recipe=$(cache_recipe)
	kernel=$cache/$release/vmlinux
	initrd=$cache/$release/initrd.$recipe
	# shellcheck disable=SC2034 # used by qemu.sh
	modules=$cache/$release/root
	[ -s "$kernel" ] && [ -s "$initrd" ]
}
