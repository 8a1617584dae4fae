# shellcheck shell=bash
# The place of the guest's kernel and initial RAM disk. Sourced by prepare and run,
# after scripts/lib.sh.
#
# Layout of the cache directory:
#
#	release                the distribution's kernel release, e.g. 6.1.0-56-amd64
#	release.NAME           the release of the kernel NAME in the file kernels
#	RELEASE/complete       present when everything else under RELEASE is
#	RELEASE/vmlinux        the kernel as qemu boots it fastest
#	RELEASE/root           its modules, with modules.dep
#	RELEASE/initrd.HASH    HASH is of the files from which the RAM disk is made
#	RELEASE/kvm            the result of the last try of KVM, and during which boot
#	lock                   held by the process that writes here

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

# cache_recipe prints a hash of the files that determine the content of the RAM disk.
cache_recipe() {
	cat "$softroce_dir/prepare" "$softroce_dir/init" | sha256sum | cut -c1-16
}

# kernel_row sets release_file. If kernel_name is not empty, it also sets kernel_suite
# and kernel_package from the file kernels, and dies if that has no such kernel.
kernel_row() {
	release_file=$cache/release
	if [ -z "$kernel_name" ]; then return; fi
	release_file+=.$kernel_name
	# shellcheck disable=SC2034 # used by prepare
	read -r kernel_suite kernel_package < <(
		awk -v name="$kernel_name" '!/^#/ && $1 == name { print $2, $3 }' "$softroce_dir/kernels"
	) || DIE_STATUS=2 die "no kernel '$kernel_name': ci/softroce/kernels has $(kernel_names)"
}

# kernel_names prints the names in the file kernels, on one line.
kernel_names() { awk '!/^#/ && NF { printf "%s%s", sep, $1; sep = " " }' "$softroce_dir/kernels"; }

# cache_load sets release, kernel, initrd and modules from the cache. It fails if the
# cache is missing or older than the recipe.
cache_load() {
	local recipe
	release=$(cat "$release_file" 2>/dev/null) || return 1
	[ -n "$release" ] && [ -e "$cache/$release/complete" ] || return 1
	recipe=$(cache_recipe)
	kernel=$cache/$release/vmlinux
	initrd=$cache/$release/initrd.$recipe
	# shellcheck disable=SC2034 # used by qemu.sh
	modules=$cache/$release/root
	[ -s "$kernel" ] && [ -s "$initrd" ]
}
