# shellcheck shell=bash
# Sourced by scripts that measure in rounds for build/measure: how a figure is noted.

SAMPLES=$SPLITNIC_WORK/samples.jsonl

# note GROUP SUBJECT SIZE QUEUES METRIC UNIT VALUE notes a figure.
note() {
	printf '{"group":"%s","subject":"%s","size":%d,"queues":%d,"metric":"%s","unit":"%s","value":%s}\n' "$@" >>"$SAMPLES"
}

# note_where notes what the RDMA devices are.
note_where() {
	printf '{"note":"RDMA devices: Soft-RoCE, %s, Linux %s"}\n' "$SPLITNIC_SOFTROCE_MODE" "$(uname -r)" >>"$SAMPLES"
}

# in_turn prints its arguments, a line each, backwards in every other round, so
# that what comes first is not always the same.
in_turn() {
	if ((${round:?} % 2)); then printf '%s\n' "$@"; else printf '%s\n' "$@" | tac; fi
}

# median_ping NETNS ADDRESS COUNT prints the median of round trips in us.
median_ping() { ip netns exec "$1" ping -n -c "$3" -i 0.02 -W 2 "$2" | "$MEASURE" ping | awk '{ print $1 }'; }
