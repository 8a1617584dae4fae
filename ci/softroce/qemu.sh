# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables are run's
# How a guest is started, watched and ended. Sourced by run.

# guest_machine prints the arguments common to all guests, one per line. The model is
# qemu64 on purpose: with -cpu max the emulated checksum and copy instructions make
# Soft-RoCE two to three times slower.
guest_machine() {
	case $1 in
	kvm) printf '%s\n' -accel kvm -cpu host ;;
	tcg) printf '%s\n' -accel tcg,thread=multi -cpu "$cpu" ;;
	esac
	printf '%s\n' -M q35 -nodefaults -display none -no-reboot \
		-kernel "$kernel" -initrd "$initrd" \
		-device isa-debug-exit,iobase=0xf4,iosize=1
}

# comma prints a path as a qemu option value, in which commas are doubled.
comma() { printf '%s' "${1//,/,,}"; }

# kvm_boots reports whether a guest under KVM starts init. qemu exits with 1 only if
# init has written to its debug-exit port.
kvm_boots() {
	local args
	mapfile -t args < <(guest_machine kvm)
	timeout -k 1 15 qemu-system-x86_64 "${args[@]}" -m 512M -smp 1 -nic none \
		-append 'console=ttyS0 panic=-1 no_timer_check quiet splitnic.probe' \
		</dev/null >"$cache/$release/kvm.log" 2>&1
	[ $? = 1 ] && ! grep -qi 'kvm.*\(fail\|denied\|error\)' "$cache/$release/kvm.log"
}

# shell_quote prints its argument, quoted for any shell.
shell_quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# write_launch SCRIPT ARGS... writes the script that bash runs in the guest.
write_launch() {
	local go_bin='' name a
	if command -v go >/dev/null 2>&1; then go_bin=:$(dirname "$(readlink -f "$(command -v go)")"); fi
	{
		while read -r name; do
			printf 'export %s=%s\n' "$name" "$(shell_quote "${!name}")"
		done < <(compgen -e | grep '^SPLITNIC_')
		printf 'export PATH=%s\n' "$(shell_quote "/run/splitnic/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin$go_bin")"
		printf 'export HOME=/tmp LANG=C.UTF-8 TERM=dumb SHELL=/bin/bash USER=root\n'
		printf 'export SPLITNIC_WORK=/run/splitnic/work SPLITNIC_SOFTROCE_MODE=%s\n' "$mode"
		if [ -n "$cable" ]; then printf "modprobe virtio_net || exit\n"; fi
		printf 'ulimit -l unlimited; ulimit -Hn 524288; umask 022\n'
		printf 'cd %s || exit\nexec bash' "$(shell_quote "$checkout")"
		for a in "$@"; do printf ' %s' "$(shell_quote "$a")"; done
		printf '\n'
	} >"$run_dir/ctl/launch"
}

# cable_args prints the arguments for the network card of --cable PATH,SIDE.
cable_args() {
	local path=${cable%,*} side=${cable##*,} server
	case $cable in
	*,a) server=on ;;
	*,[b-f]) server=off ;;
	*) die "--cable wants PATH,a, or PATH and b to f" ;;
	esac
	printf '%s\n' -netdev "stream,id=cable,server=$server,addr.type=unix,addr.path=$(comma "$path")" \
		-device "virtio-net-pci,netdev=cable,mac=52:54:00:73:6e:0$side"
}

# socket_args prints the arguments for the devices of --agent and --qmp.
socket_args() {
	if [ -n "$agent" ]; then
		printf '%s\n' -chardev "socket,id=agent,path=$(comma "$agent")" \
			-device virtio-serial-pci -device virtserialport,chardev=agent,name=splitnic.agent
	fi
	if [ -n "$qmp" ]; then printf '%s\n' -qmp "unix:$(comma "$qmp")"; fi
}

# wait_for_cable waits until the guest at side a has made the socket.
wait_for_cable() {
	local i
	for ((i = 0; i < 600; i++)); do
		if [ -S "${cable%,*}" ]; then return; fi
		sleep 0.1
	done
	die "nobody waits at the other end of the cable ${cable%,*}"
}

# console_tail prints the end of the console, from the first complaint of the kernel
# on.
console_tail() {
	local from
	from=$(grep -anE 'soft lockup|Oops|BUG:|detected stall|Kernel panic' "$run_dir/ctl/console.log" | head -n 1)
	if [ -n "$from" ]; then
		say "softroce: the guest's console from line ${from%%:*} (all of it is in build/softroce/last/console.log):"
		tail -n "+${from%%:*}" "$run_dir/ctl/console.log" | head -n 200 >&2
	else
		say "softroce: the end of the guest's console (all of it is in build/softroce/last/console.log):"
		tail -n 60 "$run_dir/ctl/console.log" >&2
	fi
}

# run_guest ARGS... runs script in a guest and returns its status. The kernel does not
# check its timer: on a busy machine an emulated timer is late, and the kernel would
# panic. If the kernel of the guest has kept a processor for a minute, it will not
# release it: the guest ends and prints what each processor was doing.
run_guest() {
	local args sockets cable_card=(-nic none) clock='' places='' qemu cause
	local lockup='watchdog_thresh=30 softlockup_panic=1 softlockup_all_cpu_backtrace=1'
	local tailer timer ctl=$run_dir/ctl
	local priority=()
	write_launch "$script" "$@"
	printf 'checkout=%s\nharness=%s\nmodules=%s\ndeadline=%s\nmode=%s\n' \
		"$(shell_quote "$checkout")" "$(shell_quote "$softroce_dir")" "$(shell_quote "$modules")" \
		$((EPOCHSECONDS + timeout)) "$mode" >"$ctl/guest.env"
	if [ -n "$cable" ]; then
		mapfile -t cable_card < <(cable_args)
		[ ${#cable_card[@]} = 4 ] || exit "$status_setup"
		case $cable in
		*,a) rm -f "${cable%,*}" ;; # of a guest that was killed
		*) wait_for_cable ;;
		esac
	fi
	mapfile -t sockets < <(socket_args)
	mapfile -t args < <(guest_machine "$mode")

	# A kernel that finds that the processors' counters disagree, as emulated ones do, reads
	# its clock from the HPET. Each such read is a system call, and waits for a lock that
	# qemu has for all devices.
	if [ "$mode" = tcg ]; then clock='tsc=reliable'; fi

	# qemu 7 caches translated code by virtual address. If programs and libraries have other
	# addresses at each start, it translates them again, which is a third to a half of the
	# time of short processes.
	if [ "$mode" = tcg ]; then places=norandmaps; fi

	# Time-outs of programs assume a machine that is not stopped for long.
	if [ "$EUID" = 0 ]; then priority=(nice -n -5); fi

	setpriv --pdeathsig KILL "${priority[@]}" qemu-system-x86_64 "${args[@]}" -m "$mem" -smp "$smp" "${cable_card[@]}" "${sockets[@]}" \
		-name "splitnic-${run_dir##*.}" -serial "file:$(comma "$ctl/console.log")" \
		-append "console=ttyS0 panic=-1 oops=panic mitigations=off no_timer_check log_buf_len=4M quiet $lockup $clock $places" \
		-virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
		-virtfs "local,path=$(comma "$ctl"),mount_tag=ctl,security_model=none,multidevs=remap" \
		-virtfs "local,path=$(comma "$work"),mount_tag=work,security_model=none,multidevs=remap" \
		</dev/null >"$ctl/qemu.log" 2>&1 &
	qemu=$!
	tail -n +1 -s 0.1 -f --pid="$qemu" "$ctl/output.log" 2>/dev/null &
	tailer=$!
	# The guest ends the script itself at its time-out, so that its log is saved. This
	# timer is for a guest that does not respond any more.
	setpriv --pdeathsig KILL sleep $((timeout + 10)) &
	timer=$!
	pids=("$qemu" "$tailer" "$timer")
	wait -n "$qemu" "$timer"
	if kill -0 "$qemu" 2>/dev/null; then
		: >"$ctl/timedout"
		kill -KILL "$qemu"
	fi
	wait "$qemu" "$tailer" 2>/dev/null
	kill "$timer" 2>/dev/null
	wait "$timer" 2>/dev/null
	pids=()
	if [[ $cable == *,a ]]; then rm -f "${cable%,*}"; fi

	[ -e "$ctl/dmesg.txt" ] || cp "$ctl/console.log" "$ctl/dmesg.txt" 2>/dev/null
	if [ -e "$ctl/timedout" ]; then
		say "softroce: the script was still running after $timeout seconds"
		if [ -s "$ctl/processes.txt" ]; then
			say "softroce: its processes:"
			grep -v "\\[.*\\]\$" "$ctl/processes.txt" >&2
		fi
		console_tail
		return "$status_timeout"
	fi
	if [ -s "$ctl/rc" ]; then return "$(cat "$ctl/rc")"; fi
	if [ ! -e "$ctl/started" ] && [ ! -s "$ctl/console.log" ]; then
		say "softroce: qemu did not start a guest:"
		cat "$ctl/qemu.log" >&2
		return "$status_setup"
	fi
	if [ "$mode" = tcg ] && cause=$(emulation_killed "$ctl/console.log"); then
		say "softroce: the emulation has killed the guest: $cause"
		console_tail
		return "$status_emulation"
	fi
	say "softroce: the guest died"
	console_tail
	return "$status_died"
}
