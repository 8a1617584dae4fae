# shellcheck shell=bash
# Sourced, after ci/softroce/topology.sh and product.sh, by scripts that measure
# between the RDMA devices snrxe0 and snrxe1, or through netdevices. Figures are
# read from the tools' output by build/measure.

MEASURE=build/measure
# A device that is emulated in software may answer late without anything being
# lost; perftest's own timeout makes it send again (4.096 us * 2^18: one second).
QP_TIMEOUT=18
MEASURE_TIMEOUT=60
measure_started=$SECONDS

# step says what comes now, and how long the script has run.
step() { printf '\n== [%3d s] %s\n' $((SECONDS - measure_started)) "$*"; }

# retries sets RNR and RETRY to how often all devices together have found a
# receiver not ready, and have sent again.
retries() {
	local d f value
	RNR=0 RETRY=0
	for d in /sys/class/infiniband/snrxe[0-9]/ports/1/hw_counters; do
		for f in rcvd_rnr_err send_rnr_err retry_rnr_exceeded_err; do
			read -r value <"$d/$f" && RNR=$((RNR + value))
		done
		for f in completer_retry_err retry_exceeded_err; do
			read -r value <"$d/$f" && RETRY=$((RETRY + value))
		done
	done
}

# listening PORT [COMMAND…] reports whether something listens on the TCP port,
# seen by COMMAND ss.
listening() {
	local port=$1
	shift
	"$@" ss -Hltn "sport = :$port" | grep -q .
}

# perftest TOOL SIZE ARGS… prints TOOL's line of figures for messages of SIZE
# bytes from snrxe1 to snrxe0; when it fails, what both ends had to say. Its
# clock is the processor's counter; on a busy machine it may not find out how
# fast that is, and prints zeros: it is called again then.
perftest() {
	local try dir line='' rc=1
	dir=$(mktemp -d)
	for try in 1 2 3; do
		perftest_once "$dir" "$@" || break
		line=$(awk -v s="$2" '$1 == s' "$dir/client")
		if awk '{ exit !($4 > 0 && $5 > 0 && !/inf/) }' <<<"$line"; then
			printf '%s\n' "$line"
			rc=0
			break
		fi
		printf '%s has no figures, try %d\n' "$1" "$try" >&2
	done
	if [ "$rc" != 0 ]; then tail -n 5 "$dir"/* >&2; fi
	rm -rf "$dir"
	return "$rc"
}

# perftest_once DIR TOOL SIZE ARGS… leaves the output of both ends in DIR.
perftest_once() {
	local dir=$1 tool=$2 size=$3 server rc=0
	shift 3
	timeout "$MEASURE_TIMEOUT" "$tool" -d snrxe0 -x "$(rxe_gid_index snrxe0)" -u "$QP_TIMEOUT" -s "$size" -F "$@" >"$dir/server" 2>&1 &
	server=$!
	if poll 10 listening 18515; then
		timeout "$MEASURE_TIMEOUT" "$tool" -d snrxe1 -x "$(rxe_gid_index snrxe1)" -u "$QP_TIMEOUT" -s "$size" -F "$@" "$FABRIC_NET.1" >"$dir/client" 2>&1 || rc=1
	else
		kill "$server"
		rc=1
	fi
	wait "$server" || rc=1
	return "$rc"
}

# iperf_start NETNS has iperf3 answer in NETNS, as IPERF_PIDS[NETNS].
declare -A IPERF_PIDS
iperf_start() {
	ip netns exec "$1" iperf3 -s >/dev/null 2>&1 &
	IPERF_PIDS[$1]=$!
	poll 10 listening 5201 ip netns exec "$1"
}

# iperf_stop [NETNS…] ends those, or all.
iperf_stop() {
	local ns
	if [ $# = 0 ]; then set -- "${!IPERF_PIDS[@]}"; fi
	for ns; do
		kill "${IPERF_PIDS[$ns]}" && wait "${IPERF_PIDS[$ns]}"
		unset "IPERF_PIDS[$ns]"
	done 2>/dev/null
	return 0
}

# iperf tcp|udp NETNS ADDRESS SECONDS FLAGS… prints what the receiver got of
# what was sent from NETNS to ADDRESS: Mbit/s, and of UDP datagrams/s as well.
iperf() {
	local kind=$1 ns=$2 address=$3 seconds=$4 udp=()
	shift 4
	if [ "$kind" = udp ]; then udp=(-u -b 0); fi
	timeout $((seconds + 30)) ip netns exec "$ns" iperf3 -c "$address" -t "$seconds" -J "${udp[@]}" "$@" | "$MEASURE" "iperf-$kind"
}
