# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables are run's
# Runs a script on this machine's own kernel. Sourced by run.

# native_objects prints one line for each object that a script can leave behind.
native_objects() {
	local d
	for d in /sys/class/infiniband/*; do
		if [ -e "$d" ]; then printf 'rdma %s\n' "${d##*/}"; fi
	done
	for d in /run/netns/*; do
		if [ -e "$d" ]; then printf 'netns %s\n' "${d##*/}"; fi
	done
	for d in /sys/class/net/*; do
		if [ -e "$d" ]; then printf 'link %s\n' "${d##*/}"; fi
	done
}

# native_kill ends all processes of the script, in any process group or session. It
# finds them by their environment.
native_kill() {
	local e
	if [ -z "${native_script:-}" ]; then return; fi
	kill -KILL -- "-$native_script" 2>/dev/null
	grep -lsxzF "SPLITNIC_RUN=$run_dir" /proc/[0-9]*/environ | while read -r e; do
		e=${e#/proc/}
		kill -KILL "${e%/environ}" 2>/dev/null
	done
}

# native_clean ends the script's processes and removes the objects that it has left.
# RDMA devices are removed first, because a netdevice cannot be removed while an RDMA
# device is open on it.
native_clean() {
	local kind name
	native_kill
	if [ ! -e "$run_dir/before" ]; then return; fi
	while read -r kind name; do
		say "softroce: the script left $kind $name behind: removing it"
		case $kind in
		rdma) timeout 10 rdma link delete "$name" ;;
		netns) ip netns delete "$name" ;;
		link) if [ -e "/sys/class/net/$name" ]; then timeout 10 ip link delete "$name"; fi ;;
		esac
	done < <(native_objects | sort | comm -13 "$run_dir/before" - | sort -r)
	rm -f "$run_dir/before"
}

# run_native ARGS... runs script on this kernel, which has one fabric, and returns its
# status. A second run waits for the first one.
run_native() {
	local rc timer tailer ctl=$run_dir/ctl
	exec 7>/run/splitnic-softroce.lock
	flock 7
	native_objects | sort >"$run_dir/before"
	mkdir -p /run/splitnic
	printf 'splitnic: script starts %s\n' "${run_dir##*.}" >/dev/kmsg
	(
		cd "$checkout" || exit
		ulimit -l unlimited
		export SPLITNIC_WORK=$work SPLITNIC_SOFTROCE_MODE=native SPLITNIC_RUN=$run_dir
		exec setsid bash "$script" "$@"
	) </dev/null >>"$ctl/output.log" 2>&1 7>&- &
	native_script=$!
	tail -n +1 -s 0.1 -f --pid="$native_script" "$ctl/output.log" &
	tailer=$!
	sleep "$timeout" &
	timer=$!
	pids=("$tailer" "$timer")
	wait -n "$native_script" "$timer"
	rc=$?
	if kill -0 "$native_script" 2>/dev/null; then
		say "softroce: the script was still running after $timeout seconds"
		native_kill
		wait "$native_script" 2>/dev/null
		rc=$status_timeout
	fi
	kill "$timer" 2>/dev/null
	wait "$timer" "$tailer" 2>/dev/null
	pids=()
	native_clean
	dmesg | sed -n "/splitnic: script starts ${run_dir##*.}/,\$p" >"$ctl/dmesg.txt"
	return "$rc"
}
