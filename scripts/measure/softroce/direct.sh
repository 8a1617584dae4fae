# shellcheck shell=bash
# Sourced after product.sh, measure.sh and latency.sh by a script that has the functions
# measure, card_down and in_turn (scripts/measure/softroce/inside): the group "direct". Two hosts
# of one I/O unit, each of the three on an RDMA device of its own, that are connected
# directly, and that are not.

prepare_direct() { keys_make "${private:?}" || die "no keys"; }

# direct_status NETNS prints of the direct connection of the host there how long it took
# to make, in ms, and how many frames went through the I/O unit; it fails if there is
# none in use.
direct_status() { "$SPLITNIC" status --json "/run/splitnic/$1.sock" | "$MEASURE" direct; }

is_direct() { direct_status "$1" >/dev/null 2>&1; }

# ticks PID prints how long a process has had a processor, in hundredths of a second.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# beside_unit IDLE COMMAND… prints the figures that COMMAND prints, and how much of a
# processor the I/O unit's process had meanwhile, in %, beyond IDLE.
beside_unit() {
	local idle=$1 from began figures
	shift
	from=$(ticks "$UNIT_PID") began=$EPOCHREALTIME
	figures=$("$@") || return 1
	awk -v figures="$figures" -v ticks="$(($(ticks "$UNIT_PID") - from))" -v from="$began" -v to="$EPOCHREALTIME" -v idle="$idle" \
		'BEGIN { used = ticks / (to - from) - idle; print figures, (used > 0 ? used : 0) }'
}

# nothing takes as long as a measurement, for what the I/O unit does without any.
nothing() { sleep "${iperf_seconds:?}"; }

# two_hosts SUBJECT [HOST FLAGS…] measures from one host to the other.
two_hosts() {
	local subject=$1 to=10.77.0.3 ns idle
	shift
	lan_up || die "no LAN"
	unit_start || die "no I/O unit"
	host_start snhost "$@" || die "no host"
	host_start snhost2 --device snrxe2 "$@" || die "no second host"
	host_up snhost 10.77.0.2/24 || die "the host's netdevice has no carrier"
	host_up snhost2 "$to/24" || die "the second host's netdevice has no carrier"
	iperf_start snhost2 || die "no iperf3 at the second host"
	# A second of this has them connect.
	iperf tcp snhost "$to" 1 >/dev/null || die "iperf3 failed"
	if [ "$subject" = splitnic-direct ]; then
		for ns in snhost snhost2; do
			poll 20 is_direct "$ns" || die "no direct connection at $ns; see $LOGS/unit.log, snhost.log and snhost2.log"
		done
		measure direct "$subject" 1500 1 "set-up:ms frames-before:frames" direct_status snhost
	fi
	measure direct "$subject" 1500 1 "idle-unit:%" beside_unit 0 nothing
	read -r idle <"${private:?}/out"
	measure direct "$subject" 1500 1 "p50:us p99:us" round_trips snhost "$to"
	measure direct "$subject" 1500 1 "tcp:Mbit/s tcp-unit:%" beside_unit "$idle" iperf tcp snhost "$to" "${iperf_seconds:?}"
	measure direct "$subject" 1500 1 "tcp-reverse:Mbit/s tcp-reverse-unit:%" \
		beside_unit "$idle" iperf tcp snhost "$to" "${iperf_seconds:?}" -R
	measure direct "$subject" 1500 1 "udp:Mbit/s" only_mbps snhost "$to" "${iperf_seconds:?}" -l 1472
	iperf_stop snhost2
	card_down
}

direct_round() {
	local subject
	# shellcheck disable=SC2034 # lan_up reads it
	LAN_MTU=1500
	while read -r subject; do
		case $subject in
		splitnic-direct) two_hosts "$subject" ;;
		splitnic-unit) two_hosts "$subject" --direct=no ;;
		esac
	done < <(in_turn splitnic-unit splitnic-direct)
}
