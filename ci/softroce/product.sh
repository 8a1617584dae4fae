# shellcheck shell=bash
# Sourced after topology.sh by scripts that run the product: an I/O unit with a LAN, and
# hosts, each in its own network namespace.
#
#	snlan   the LAN's server: 10.77.0.1, fd77::1 on lan0
#	snunit  the I/O unit's network card eth1, whose cable leads to lan0
#	snhost, snhost2, …  the netdevice sn0 of one host each
#
# The processes stay in the initial network namespace, where the RDMA devices are. The
# I/O unit uses snrxe0, all hosts use snrxe1.

SPLITNIC=${SPLITNIC:-build/splitnic}
LAN_MTU=${LAN_MTU:-1500}
UNIT_ADDRESS=$FABRIC_NET.1

# lan_up makes the namespaces snlan and snunit and the cable between them.
lan_up() {
	modprobe -a tun macvtap veth 2>/dev/null
	ip netns add snlan && ip netns add snunit || return 1
	ip link add eth1 mtu "$LAN_MTU" netns snunit type veth peer name lan0 mtu "$LAN_MTU" netns snlan || return 1
	ip -n snlan link set lo up
	ip -n snlan addr add 10.77.0.1/24 dev lan0
	ip -n snlan addr add fd77::1/64 dev lan0 nodad
	ip -n snlan link set lan0 up && ip -n snunit link set eth1 up
}

lan_down() {
	local ns
	for ns in snlan snunit; do
		if [ -e "/run/netns/$ns" ]; then ip netns delete "$ns"; fi
	done
}

# keys_make makes one key for the I/O unit and one for the hosts in DIR, and sets
# UNIT_KEY and HOST_KEY to their fingerprints.
keys_make() {
	KEYS=$1
	UNIT_KEY=$("$SPLITNIC" keygen --out "$KEYS/unit.pem") || return 1
	HOST_KEY=$("$SPLITNIC" keygen --out "$KEYS/host.pem") || return 1
}

# unit_start [FLAGS…] starts the I/O unit, sets UNIT_PID, and logs to $LOGS/unit.log.
unit_start() {
	"$SPLITNIC" iounit --device snrxe0 --listen "$UNIT_ADDRESS" --lan "${LAN_KIND:-macvtap}:eth1" --netns snunit \
		--key "$KEYS/unit.pem" --trust "hosts=$HOST_KEY" --name unit --peer-timeout 10s "$@" 2>>"$LOGS/unit.log" &
	UNIT_PID=$!
}

# host_start NETNS [FLAGS…] starts a host with its netdevice sn0 in NETNS, which it
# makes if necessary, and sets HOST_PIDS[NETNS].
declare -A HOST_PIDS
host_start() {
	local ns=$1
	shift
	if [ ! -e "/run/netns/$ns" ]; then
		ip netns add "$ns" && ip -n "$ns" link set lo up || return 1
	fi
	"$SPLITNIC" host --device snrxe1 --iounit "$UNIT_ADDRESS" --name sn0 --netns "$ns" --host-name "$ns" \
		--status-socket "/run/splitnic/$ns.sock" \
		--key "$KEYS/host.pem" --trust "unit=$UNIT_KEY" --peer-timeout 10s "$@" 2>>"$LOGS/$ns.log" &
	HOST_PIDS[$ns]=$!
}

# carrier NETNS reports whether the netdevice sn0 in NETNS has carrier.
carrier() { ip -n "$1" -br link show sn0 2>/dev/null | grep -q '[^_]LOWER_UP'; }

no_carrier() { ! carrier "$1"; }

# host_up NETNS ADDRESS… waits until sn0 in NETNS has carrier, and adds the addresses.
host_up() {
	local ns=$1 a
	shift
	poll 30 carrier "$ns" || {
		fabric_say "sn0 in $ns has no carrier after 30 s"
		tail -n 5 "$LOGS/unit.log" "$LOGS/$ns.log" >&2
		return 1
	}
	for a; do
		case $a in
		*:*) ip -n "$ns" addr add "$a" dev sn0 nodad ;;
		*) ip -n "$ns" addr add "$a" dev sn0 ;;
		esac || return 1
	done
}

# stop PID ends a process with SIGTERM, as a service manager does, and returns its
# status.
stop() {
	kill -TERM "$1" && wait "$1"
}

# product_down ends the hosts, the I/O unit and their namespaces.
product_down() {
	local ns rc=0
	for ns in "${!HOST_PIDS[@]}"; do
		stop "${HOST_PIDS[$ns]}" || rc=1
		unset "HOST_PIDS[$ns]"
		ip netns delete "$ns"
	done
	if [ -n "${UNIT_PID:-}" ]; then
		stop "$UNIT_PID" || rc=1
		UNIT_PID=
	fi
	lan_down
	return "$rc"
}
