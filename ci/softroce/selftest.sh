#!/bin/bash
# selftest.sh CASE [ARG]: a script that harness_test.go runs by ci/softroce/run, to
# check that the harness detects failures.
set -u
# shellcheck source=ci/softroce/topology.sh
. "$(dirname "${BASH_SOURCE[0]}")/topology.sh"

fail() {
	printf 'FAIL: %s\n' "$*"
	exit 1
}

# bandwidth A B runs ib_write_bw from snrxeA to snrxeB.
bandwidth() {
	local server rc
	ib_write_bw -d "snrxe$2" -x "$(rxe_gid_index "snrxe$2")" -s 4096 -n 500 -F >"/tmp/bw.server" 2>&1 &
	server=$!
	# 18515 is 4853 in the kernel's hexadecimal table; 0A is LISTEN.
	poll 20 grep -q ':4853 [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6 || fail "ib_write_bw does not listen"
	timeout 60 ib_write_bw -d "snrxe$1" -x "$(rxe_gid_index "snrxe$1")" -s 4096 -n 500 -F 127.0.0.1
	rc=$?
	wait "$server" || rc=$?
	return "$rc"
}

# answer_of A B prints the address that srA has for port B, if it has one.
answer_of() { ip neigh show "$FABRIC_NET.$(($2 + 1))" dev "sr$1" | sed -n 's/.*lladdr \([^ ]*\).*/\1/p'; }

# answered A B reports whether srA has an address for port B.
answered() { [ -n "$(answer_of "$1" "$2")" ]; }

# copied N reports whether N bytes of the output have arrived outside of the guest.
copied() { [ "$(sed -n 's/^wchar: //p' "/proc/$(pgrep -fx 'cat /pipe')/io")" -ge "$1" ]; }

case ${1:-fabric} in
exit) exit "$2" ;;
args)
	shift
	printf '<%s>\n' "$@"
	;;
lines) for ((i = 1; i <= $2; i++)); do echo "line $i"; done ;;
panic | lockup)
	# The kernel's message when a processor has not scheduled for a minute.
	if [ "$1" = lockup ]; then echo '<0>Kernel panic - not syncing: softlockup: hung tasks' >/dev/kmsg; fi
	echo before
	poll 20 copied 7 || fail "the output is not copied"
	echo c >/proc/sysrq-trigger
	;;
complain) echo 'BUG: said by the self-test' >/dev/kmsg ;;
defect)
	# The kernel's message about a known defect, as many times as the argument says.
	for ((i = 0; i < $2; i++)); do
		for line in '------------[ cut here ]------------' \
			'WARNING: CPU: 0 PID: 206 at drivers/infiniband/sw/rxe/rxe_pool.c:255 __rxe_cleanup+0x118/0x160 [rdma_rxe]' \
			'Call Trace:' '---[ end trace 0000000000000000 ]---'; do
			echo "$line" >/dev/kmsg
		done
	done
	;;
hang)
	echo before
	sleep 10000
	;;
deaf)
	# The guest's own watchdog cannot end this either.
	echo before
	kill -STOP -1
	sleep 10000
	;;
background)
	# This process keeps the output open.
	sleep 10000 &
	echo finished
	;;
litter)
	# Objects that a script leaves when it fails in the middle.
	setsid sleep 10000 &
	ip netns add snlitter
	fabric_up 2 || fail "fabric_up"
	exit 5
	;;
leave) ip netns add snlitter ;;
package)
	# Objects that the tests of a package leave are found.
	ci/softroce/package.sh "$PWD/ci/softroce" "$PWD/ci/softroce/selftest.sh" exit 0 || fail "good tests: status $?"
	ci/softroce/package.sh "$PWD/ci/softroce" "$PWD/ci/softroce/selftest.sh" exit 3 && fail "bad tests pass"
	ci/softroce/package.sh "$PWD/ci/softroce" "$PWD/ci/softroce/selftest.sh" leave >/tmp/left && fail "tests that leave a namespace behind pass"
	grep -q 'left behind: netns snlitter' /tmp/left || fail "it is not named: $(cat /tmp/left)"
	echo package fine
	;;
native)
	# Native mode, on the guest's kernel. Checkouts are read-only in the guest.
	mount -t tmpfs tmpfs build/softroce || fail "cannot mount build/softroce"
	nested() {
		local want=$1 rc
		shift
		SPLITNIC_KERNEL='' ci/softroce/run --mode native "$@" >/tmp/nested.out 2>/tmp/nested.err
		rc=$?
		[ "$rc" = "$want" ] || fail "native $*: status $rc, not $want: $(cat /tmp/nested.out /tmp/nested.err)"
	}
	before=$(mktemp)
	snapshot >"$before"
	nested 0 "$0" environment
	nested 0 "$0" lines 5000
	[ "$(wc -l </tmp/nested.out)" = 5000 ] || fail "lines are missing"
	nested 126 "$0" complain
	nested 0 --allow-dmesg "$0" complain
	nested 124 --timeout 1 "$0" hang
	nested 5 "$0" litter
	grep -q 'left rdma snrxe1 behind' /tmp/nested.err || fail "litter was not reported"
	leaks "$before" || fail "litter was not removed"
	if pgrep -f 'sleep 10000'; then fail "a process was left"; fi
	nested 0 "$0" fabric
	grep -q 'behind' /tmp/nested.err && fail "the fabric test left something: $(cat /tmp/nested.err)"
	echo native fine
	;;
cable)
	# Two guests, one at each end of a cable.
	poll 20 test -e /sys/class/net/eth0 || fail "no eth0"
	ip addr add "10.198.0.$2/24" dev eth0
	ip link set eth0 mtu 9000 up
	if [ "$2" = 1 ]; then
		timeout 90 iperf3 -s -1 || fail "nobody came"
	else
		poll 60 iperf3 -c 10.198.0.1 -t 1 --connect-timeout 1000 || fail "nobody answered"
	fi
	;;
environment)
	if [ $# = 3 ]; then # of a guest, and of an emulated one
		want=$2
		if [ "$SPLITNIC_SOFTROCE_MODE" = tcg ]; then want=$3; fi
		[ "$(nproc)" = "$want" ] || fail "$(nproc) processors instead of $want"
	fi
	[ "$(id -u)" = 0 ] || fail "not root"
	[ "$(ulimit -l)" = unlimited ] || fail "ulimit -l is $(ulimit -l)"
	[ -w "$SPLITNIC_WORK" ] || fail "cannot write to $SPLITNIC_WORK"
	[ -c /dev/net/tun ] || fail "no /dev/net/tun"
	[ -w /dev/shm ] || fail "no /dev/shm"
	[ "$(cat < <(echo through))" = through ] || fail "no /dev/fd"
	ip -o link show lo | grep -q LOWER_UP || fail "lo is down"
	echo written >"$SPLITNIC_WORK/file" || fail "cannot write a file"
	[ "$(cat "$SPLITNIC_WORK/file")" = written ] || fail "read back something else"
	pwd
	date +%s
	;;
fabric)
	before=$(mktemp)
	snapshot >"$before"
	fabric_up 2 || fail "fabric_up"
	bandwidth 0 1 || fail "ib_write_bw"
	rxe_counters snrxe0 | grep -E '^(sent|rcvd)_pkts [1-9]' || fail "no packet was counted"
	fabric_cut 1 || fail "fabric_cut"
	rxe_active snrxe0 || fail "the other port went down too"
	fabric_heal 1 || fail "fabric_heal"
	bandwidth 1 0 || fail "ib_write_bw after fabric_heal"
	leaks "$before" >/tmp/leaks && fail "leaks does not see a fabric"
	grep -q 'left behind: rdma snrxe1' /tmp/leaks || fail "leaks does not name snrxe1"
	fabric_down || fail "fabric_down"
	leaks "$before" || fail "fabric_down left something"
	fabric_up 3 || fail "fabric_up 3"
	for from in 0 1 2; do
		for to in 0 1 2; do
			if [ "$from" = "$to" ]; then continue; fi
			ip neigh replace "$FABRIC_NET.$((to + 1))" dev "sr$from" use || fail "ip neigh"
			poll 5 answered "$from" "$to" || fail "sr$from has no answer of sr$to"
			answer=$(answer_of "$from" "$to")
			[ "$answer" = "$(cat "/sys/class/net/sr$to/address")" ] || fail "sr$from asked for sr$to, $answer answered"
		done
	done
	fabric_down || fail "fabric_down of 3"
	echo fabric fine
	;;
*) fail "no such case: $1" ;;
esac
