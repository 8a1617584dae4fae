# shellcheck shell=bash
# Sourced after product.sh and measure.sh by a script that has the functions
# measure and in_turn (scripts/measure/softroce/inside): the group "latency". Round trips of
# marked echo requests through the card, on an idle card, and while TCP streams
# fill it in both directions, with the latency queue and without.

# round_trips NETNS ADDRESS prints the median and the 99th percentile in us of
# those that came back; a full queue drops some of the others.
round_trips() {
	ip netns exec "$1" ping -n -c 150 -i 0.01 -W 5 -Q 0xb8 "$2" | "$MEASURE" ping | awk '$3 >= 75 { print $1, $2 }'
}

prepare_latency() { keys_make "${private:?}" || die "no keys"; }

# streaming NETNS reports whether iperf3 has its connections there: one for
# control and one for each direction.
streaming() { [ "$(ip netns exec "$1" ss -Htn state established 'dport = :5201' | wc -l)" -ge 3 ]; }

# latency_of IDLE BUSY [HOST FLAGS…] measures as BUSY, and before the streams as
# IDLE unless that is empty.
latency_of() {
	# shellcheck disable=SC2034 # card_up reads UNIT_FLAGS
	local idle=$1 busy=$2 load UNIT_FLAGS=(--queues 1)
	shift 2
	card_up --queues 1 "$@"
	iperf_start snlan || die "no iperf3 on the LAN"
	if [ -n "$idle" ]; then
		measure rtt "$idle" 1500 1 "p50:us p99:us" round_trips snhost 10.77.0.1
	fi
	ip netns exec snhost iperf3 -c 10.77.0.1 -t 60 --bidir >/dev/null 2>&1 &
	load=$!
	poll 20 streaming snhost || die "iperf3 does not stream"
	measure rtt "$busy" 1500 1 "p50:us p99:us" round_trips snhost 10.77.0.1
	kill -0 "$load" 2>/dev/null || die "the streams ended before the measurement"
	kill "$load" && wait "$load" 2>/dev/null
	iperf_stop snlan
	card_down
}

latency_round() {
	local subject
	# shellcheck disable=SC2034 # lan_up reads it
	LAN_MTU=1500
	while read -r subject; do
		case $subject in
		splitnic-loaded) latency_of splitnic-idle "$subject" ;;
		splitnic-loaded-latency-queue) latency_of '' "$subject" --latency-queue ;;
		esac
	done < <(in_turn splitnic-loaded splitnic-loaded-latency-queue)
}
