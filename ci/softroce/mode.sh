# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables are run's
# Chooses the environment of a run. Sourced by run.

# native_missing prints why the running kernel cannot be used, or nothing if it can.
# Loads rdma_rxe if that is permitted.
native_missing() {
	if [ ! -d /sys/module/rdma_rxe ] && ! modinfo -n rdma_rxe >/dev/null 2>&1; then
		printf 'the running kernel %s has no rdma_rxe module' "$(uname -r)"
	elif [ "$(id -u)" != 0 ]; then
		printf 'only root can use rdma_rxe on the running kernel'
	elif [ ! -d /sys/module/rdma_rxe ] && ! modprobe rdma_rxe 2>/dev/null; then
		printf 'modprobe rdma_rxe fails on the running kernel %s' "$(uname -r)"
	elif ! command -v rdma >/dev/null 2>&1; then
		printf 'the rdma command is missing: apt-get install iproute2'
	fi
}

# guest_missing prints what this machine lacks for any guest, or nothing if a guest can
# be started.
guest_missing() {
	if [ "$(uname -m)" != x86_64 ]; then
		printf 'guests are only supported on x86_64 so far, this is %s: use a kernel that has rdma_rxe' "$(uname -m)"
	elif ! command -v qemu-system-x86_64 >/dev/null 2>&1; then
		printf 'qemu-system-x86_64 is missing: apt-get install qemu-system-x86'
	elif ! command -v setpriv >/dev/null 2>&1; then
		printf 'setpriv is missing: apt-get install util-linux'
	elif ! command -v rdma >/dev/null 2>&1; then
		printf 'the rdma command is missing (guests use this machine'\''s programs): apt-get install iproute2'
	fi
}

# kvm_missing prints why KVM cannot be used, or nothing if it can. A device node does
# not prove that KVM works, so it boots a guest that ends at once. The result is kept
# until this machine boots again. Needs a loaded cache.
kvm_missing() {
	local key seen
	if [ ! -e /dev/kvm ]; then
		printf 'there is no /dev/kvm'
		return
	elif [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
		printf 'this user may not open /dev/kvm: add it to the group kvm'
		return
	fi
	key=$(cat /proc/sys/kernel/random/boot_id)
	(
		flock 9
		seen=$(cat "$cache/$release/kvm" 2>/dev/null)
		if [ "${seen%% *}" = "$key" ]; then exit; fi
		say "softroce: trying KVM with kernel $release (15 seconds at most, once per boot)"
		if kvm_boots; then seen=works; else seen=fails; fi
		printf '%s %s\n' "$key" "$seen" >"$cache/$release/kvm.new" && mv "$cache/$release/kvm.new" "$cache/$release/kvm"
	) 9>>"$cache/lock"
	seen=$(cat "$cache/$release/kvm" 2>/dev/null)
	if [ "$seen" != "$key works" ]; then
		printf '/dev/kvm is there but does not boot kernel %s within 15 seconds' "$release"
	fi
}

# choose_mode sets mode to native, kvm or tcg, according to want, and loads the cache
# for the latter two. Dies if want is not possible.
choose_mode() {
	local missing no_native
	if [ -n "$kernel_name" ]; then
		if [ "$want" = native ]; then DIE_STATUS=2 die "the kernel $kernel_name runs in a guest, not natively"; fi
		if [ "$want" = auto ]; then want=guest; fi
	fi
	mode=native
	if [ "$want" = auto ] || [ "$want" = native ]; then
		no_native=$(native_missing)
		if [ -z "$no_native" ]; then return; fi
		if [ "$want" = native ]; then die "cannot run natively: $no_native"; fi
	fi
	missing=$(guest_missing)
	if [ -n "$missing" ]; then
		if [ -n "${no_native:-}" ]; then say "softroce: not native: $no_native"; fi
		die "cannot start a guest: $missing"
	fi
	cache_load || {
		"$softroce_dir/prepare" ${kernel_name:+"$kernel_name"} || exit "$status_setup"
		cache_load || die "the cache $cache is incomplete: run ci/softroce/prepare${kernel_name:+ $kernel_name}"
	}
	mode=tcg
	if [ "$want" != tcg ]; then
		missing=$(kvm_missing)
		if [ -z "$missing" ]; then
			mode=kvm
		elif [ "$want" = kvm ]; then
			die "cannot use KVM: $missing"
		fi
	fi
}

# check_report prints one line for each condition of the choice. It returns non-zero
# when no run is possible.
check_report() {
	local native guest kvm=
	native=$(native_missing)
	if [ -n "$kernel_name" ]; then native="the kernel $kernel_name was asked for"; fi
	guest=$(guest_missing)
	printf 'native: %s\n' "${native:-yes, kernel $(uname -r)}"
	printf 'guest:  %s\n' "${guest:-yes, $(qemu-system-x86_64 --version | head -n 1)}"
	if cache_load; then
		printf 'kernel: %s, in %s\n' "$release" "$cache"
		kvm=$(kvm_missing)
		printf 'kvm:    %s\n' "${kvm:-yes}"
	else
		printf 'kernel: not in %s yet: ci/softroce/prepare%s fetches it\n' "$cache" "${kernel_name:+ $kernel_name}"
		printf 'kvm:    not tried before there is a kernel to try\n'
		kvm=untried
	fi
	for tool in ib_write_bw:perftest ibv_devinfo:ibverbs-utils ethtool:ethtool tc:iproute2; do
		command -v "${tool%:*}" >/dev/null 2>&1 ||
			printf 'missing: %s, which scripts may use: apt-get install %s\n' "${tool%:*}" "${tool#*:}"
	done
	if [ "$want" = native ] && [ -n "$native" ]; then
		printf 'mode:   none, native was asked for\n'
		return "$status_setup"
	elif [ -z "$native" ] && { [ "$want" = auto ] || [ "$want" = native ]; }; then
		printf 'mode:   native\n'
	elif [ -n "$guest" ]; then
		printf 'mode:   none\n'
		return "$status_setup"
	elif [ "$want" = tcg ] || { [ "$want" != kvm ] && [ -n "$kvm" ] && [ "$kvm" != untried ]; }; then
		printf 'mode:   tcg (software emulation)\n'
	elif [ "$kvm" = untried ]; then
		printf 'mode:   kvm where it works, otherwise tcg\n'
	elif [ -n "$kvm" ]; then
		printf 'mode:   none, kvm was asked for\n'
		return "$status_setup"
	else
		printf 'mode:   kvm\n'
	fi
}
