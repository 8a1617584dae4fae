#!/bin/bash
# dashboard.sh: the scenario of the picture dashboard.svg.
#
#   scripts/unpack prometheus
#   ci/softroce/run --timeout 1500 --smp 1 --work DIR docs/pictures/dashboard.sh
#
# Two I/O units share the cards of a LAN, and an agent has three cards. A Prometheus scrapes them
# for seven minutes, in which a cable of the fabric is pulled and plugged in again. Its database is
# then in $SPLITNIC_WORK/prometheus, and the file times there has the begin and the end.
set -uo pipefail
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

SPLITNIC=build/splitnic PROMETHEUS=build/debian/usr/bin/prometheus
log=$SPLITNIC_WORK dir=$(mktemp -d)
pids=()

# shellcheck disable=SC2317,SC2329 # called by the trap
finish() {
	local rc=$? p ns
	kill "${pids[@]}" 2>/dev/null
	for p in "${pids[@]}"; do wait "$p"; done
	for ns in snlan snunit-a snunit-b web db cache; do
		ip netns pids "$ns" | xargs -r kill
		ip netns delete "$ns"
	done
	fabric_down || rc=1
	rm -rf "$dir"
	exit "$rc"
}
trap finish EXIT

# background LOG COMMAND... runs a command until the end of the script.
background() {
	"${@:2}" >>"$log/$1.log" 2>&1 &
	pids+=($!)
}

# again LOG PAUSE COMMAND... runs a command until the end of the script, again and again.
again() {
	while :; do
		"${@:3}"
		sleep "$2"
	done >>"$log/$1.log" 2>&1 &
	pids+=($!)
}

# at SECOND WHAT waits until a second of the scenario.
at() {
	local left=$((begin + $1 - SECONDS))
	if [ "$left" -gt 0 ]; then sleep "$left"; fi
	say "[$((SECONDS - begin)) s] $2"
}

ready() { curl -fsS "http://127.0.0.1:9090/-/ready" >/dev/null 2>&1; }

fabric_up 3 || die "no fabric"
modprobe -a tun macvtap veth bridge 2>/dev/null
ip netns add snlan || die "no LAN"
ip -n snlan link add br0 type bridge
ip -n snlan addr add 10.77.0.1/24 dev br0
ip -n snlan link set br0 up

declare -A print
for key in unit node cache stranger; do
	print[$key]=$("$SPLITNIC" keygen --out "$dir/$key.pem") || die "no key"
done
cat >"$dir/policy.yaml" <<'POLICY'
hosts:
  node1:
    max-sessions: 16
  cache:
    ips: [10.77.0.13]
    max-tx-rate: 2M
POLICY
echo 'advanced: {direct-after: 200}' >"$dir/iounit.yaml"

i=0
for unit in unit-a unit-b; do
	ip netns add "sn$unit"
	ip link add eth1 netns "sn$unit" type veth peer name "$unit" netns snlan || die "no card of $unit"
	ip -n snlan link set "$unit" master br0 up
	ip -n "sn$unit" link set eth1 up
	background "$unit" "$SPLITNIC" iounit --config "$dir/iounit.yaml" --name "$unit" --device "snrxe$i" --listen "$FABRIC_NET.$((i + 1))" \
		--lan eth1 --netns "sn$unit" --key "$dir/unit.pem" --trust "node1=${print[node]}" --trust "cache=${print[cache]}" \
		--policy "$dir/policy.yaml" --peer-timeout 10s --status-socket "/run/splitnic/$unit.sock" \
		--metrics "127.0.0.1:958$i"
	((++i))
done
background node1 "$SPLITNIC" agent --device snrxe2 --iounit "$FABRIC_NET.1,$FABRIC_NET.2" --key "$dir/node.pem" \
	--trust "unit=${print[unit]}" --fail-back 20s --peer-timeout 10s --state "$dir" --metrics 127.0.0.1:9582
cat >"$dir/prometheus.yml" <<'CONFIG'
global: {scrape_interval: 5s}
scrape_configs:
  - job_name: splitnic-iounits
    static_configs:
      - {targets: ["127.0.0.1:9580"], labels: {instance: unit-a}}
      - {targets: ["127.0.0.1:9581"], labels: {instance: unit-b}}
  - job_name: splitnic-hosts
    static_configs:
      - {targets: ["127.0.0.1:9582"], labels: {instance: node1}}
CONFIG
background prometheus "$PROMETHEUS" --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/prometheus" \
	--web.listen-address=127.0.0.1:9090
poll 60 ready || die "no Prometheus"
prometheus=${pids[-1]} begin=$SECONDS since=$(date +%s)

at 20 "three cards"
poll 30 test -S /run/splitnic/agent.sock || die "no agent"
n=10
for card in web db cache; do
	own=()
	if [ "$card" = cache ]; then own=(--key "$dir/cache.pem"); fi
	ip netns add "$card"
	"$SPLITNIC" card add "$card" --netns "$card" --netdev eth0 --host-name "$card" "${own[@]}" || die "no card $card"
	"$SPLITNIC" wait "$card" --connected --carrier --timeout 60s || die "no session of $card"
	ip -n "$card" addr add "10.77.0.$((++n))/24" dev eth0
	background server ip netns exec snlan iperf3 -s -p "52$n"
done

at 45 "traffic: web sends, db receives, cache would send more than it may"
again web 1 ip netns exec web iperf3 -c 10.77.0.1 -p 5211 -t 600 -b 3M
again db 20 ip netns exec db iperf3 -c 10.77.0.1 -p 5212 -t 40 -b 6M -R
again cache 45 ip netns exec cache iperf3 -c 10.77.0.1 -p 5213 -t 30

at 80 "web and db exchange packets, and are connected directly"
background direct-server ip netns exec db iperf3 -s -p 5220
background direct timeout 70 ip netns exec web iperf3 -c 10.77.0.12 -p 5220 -u -l 1000 -b 3M -t 60

at 170 "the fabric's cable of unit-a is pulled"
fabric_cut 0
at 240 "it is plugged in again"
fabric_heal 0
at 300 "cache sends from an address that is not its own, and a stranger wants a session"
ip -n cache addr add 10.77.0.99/24 dev eth0
background source timeout 60 ip netns exec cache ping -q -i 0.2 -I 10.77.0.99 10.77.0.1
background stranger timeout 60 "$SPLITNIC" host --device snrxe2 --iounit "$FABRIC_NET.1" --name sn0 --host-name stranger \
	--key "$dir/stranger.pem" --trust "unit=${print[unit]}" --status-socket "$dir/stranger.sock"
at 390 "the LAN's cable of unit-b is pulled"
ip -n snlan link set unit-b down
at 420 "the end"
echo "$since $(date +%s)" >"$log/times"
kill "$prometheus" && wait "$prometheus"
cp -r "$dir/prometheus" "$log"
