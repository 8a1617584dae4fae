# shellcheck shell=bash
# Sourced by scripts that ci/softroce/run starts: a small RDMA fabric for tests,
# functions that break it, and a check of the objects that a test has left.
#
# The fabric is a bridge in the network namespace snfab with N veth pairs. The other
# ends of the pairs, sr0, sr1, ..., are in the initial namespace, because rdma_rxe works
# only there. They have the RDMA devices snrxe0, snrxe1, ... and the addresses
# 10.199.0.1, 10.199.0.2, ...

FABRIC_NETNS=snfab
FABRIC_NET=10.199.0
FABRIC_MTU=${FABRIC_MTU:-9000}

fabric_say() { printf 'fabric: %s\n' "$*" >&2; }

# poll SECONDS COMMAND... runs COMMAND until it succeeds, for SECONDS at most.
poll() {
	local end=$((SECONDS + $1 + 1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# fabric_ports prints the port numbers of the fabric that is up.
fabric_ports() {
	local d
	for d in /sys/class/net/sr[0-9]*; do
		if [ -e "$d" ]; then printf '%s\n' "${d##*/sr}"; fi
	done
}

# rxe_active DEV reports whether DEV's port is ACTIVE.
rxe_active() {
	local state
	read -r state 2>/dev/null <"/sys/class/infiniband/$1/ports/1/state" && [[ $state == *ACTIVE ]]
}

# rxe_down DEV reports whether DEV's port is not ACTIVE.
rxe_down() { ! rxe_active "$1"; }

# rxe_gid_index DEV prints the index of DEV's RoCE v2 GID with an IPv4 address, as
# perftest's -x needs it. It fails if there is none.
rxe_gid_index() {
	local port=/sys/class/infiniband/$1/ports/1 f i gid type
	for f in "$port"/gids/*; do
		i=${f##*/}
		read -r gid <"$f" || continue
		case $gid in
		0000:0000:0000:0000:0000:ffff:*) ;;
		*) continue ;;
		esac
		# The index has no type while the kernel fills its entry.
		if read -r type 2>/dev/null <"$port/gid_attrs/types/$i" && [ "$type" = "RoCE v2" ]; then
			printf '%s\n' "$i"
			return
		fi
	done
	return 1
}

# fabric_ready DEV reports whether DEV can be connected to.
fabric_ready() { rxe_active "$1" && rxe_gid_index "$1" >/dev/null; }

# fabric_one_cpu LINK N has one processor, number N modulo their count, handle the
# packets that LINK receives, in the order in which they arrive.
fabric_one_cpu() {
	printf '%x\n' $((1 << $2 % $(nproc))) >"/sys/class/net/$1/queues/rx-0/rps_cpus"
}

# fabric_up [N] makes a fabric of N ports (default 2) and returns when all of them can
# carry traffic.
fabric_up() {
	local n=${1:-2} i
	modprobe -a rdma_rxe ib_uverbs rdma_ucm veth bridge 2>/dev/null
	ip netns add "$FABRIC_NETNS" || return 1
	# rp_filter of a link is the larger one of "all" and the link's own.
	FABRIC_RP_FILTER=$(</proc/sys/net/ipv4/conf/all/rp_filter)
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	# Each program takes a tenth of a second in an emulated guest.
	{
		printf 'link add br0 mtu %s type bridge\nlink set br0 up\n' "$FABRIC_MTU"
		for ((i = 0; i < n; i++)); do
			printf 'link add sp%s mtu %s type veth peer name sr%s mtu %s netns %s\n' "$i" "$FABRIC_MTU" "$i" "$FABRIC_MTU" "$$"
			printf 'link set sp%s master br0 up\n' "$i"
		done
	} | ip -n "$FABRIC_NETNS" -batch - || return 1
	for ((i = 0; i < n; i++)); do
		# Both ends of a connection have local addresses of this namespace.
		echo 1 >"/proc/sys/net/ipv4/conf/sr$i/accept_local"
		echo 0 >"/proc/sys/net/ipv4/conf/sr$i/rp_filter"
		# The addresses of all ports are local. With more than two ports, other ports than the
		# one that has the address would answer ARP, and get its packets.
		echo 1 >"/proc/sys/net/ipv4/conf/sr$i/arp_ignore"
		# A packet is queued on the processor that sends it, and a queue pair sends from
		# several. Without this setting packets overtake each other, and the device takes that
		# for loss and retransmits.
		fabric_one_cpu "sr$i" "$i" || return 1
	done
	ip netns exec "$FABRIC_NETNS" bash -c "$(declare -f fabric_one_cpu)
		for ((i = 0; i < $n; i++)); do fabric_one_cpu sp\$i \$i || exit 1; done" || return 1
	for ((i = 0; i < n; i++)); do
		printf 'addr add %s.%s/24 dev sr%s\nlink set sr%s up\n' "$FABRIC_NET" "$((i + 1))" "$i" "$i"
	done | ip -batch - || return 1
	for ((i = 0; i < n; i++)); do
		printf 'link add snrxe%s type rxe netdev sr%s\n' "$i" "$i"
	done | rdma -b - || return 1
	for ((i = 0; i < n; i++)); do
		poll 20 fabric_ready "snrxe$i" || {
			fabric_say "snrxe$i is not ready after 20 s: $(rdma link show "snrxe$i")"
			return 1
		}
	done
}

# fabric_down removes the fabric. Programs must have closed its RDMA devices: the
# removal of an open one would wait for them, and fails after 10 s.
fabric_down() {
	local i rc=0
	for i in $(fabric_ports); do
		if [ -e "/sys/class/infiniband/snrxe$i" ]; then
			timeout 10 rdma link delete "snrxe$i" || {
				fabric_say "cannot delete snrxe$i: a program still has it open"
				rc=1
				continue
			}
		fi
		ip link delete "sr$i" || rc=1
	done
	if [ -e "/run/netns/$FABRIC_NETNS" ]; then ip netns delete "$FABRIC_NETNS" || rc=1; fi
	if [ -n "${FABRIC_RP_FILTER:-}" ]; then
		echo "$FABRIC_RP_FILTER" >/proc/sys/net/ipv4/conf/all/rp_filter
	fi
	return "$rc"
}

# cable_up ADDRESS/BITS [MTU] gives the card of run's --cable this address and the RDMA
# device snrxe0. It returns when the device can carry traffic.
cable_up() {
	modprobe -a rdma_rxe ib_uverbs rdma_ucm 2>/dev/null
	poll 20 test -e /sys/class/net/eth0 || return 1
	ip link set eth0 mtu "${2:-$FABRIC_MTU}" || return 1
	ip addr add "$1" dev eth0 || return 1
	ip link set eth0 up || return 1
	rdma link add snrxe0 type rxe netdev eth0 || return 1
	poll 20 fabric_ready snrxe0
}

# fabric_cut I disconnects the cable of port I: snrxeI loses its carrier, the other
# ports keep theirs. It returns when the port is down.
fabric_cut() {
	ip -n "$FABRIC_NETNS" link set "sp$1" down && poll 10 rxe_down "snrxe$1"
}

# fabric_heal I connects the cable of port I again. It returns when the port is ACTIVE.
fabric_heal() {
	ip -n "$FABRIC_NETNS" link set "sp$1" up && poll 10 rxe_active "snrxe$1"
}

# fabric_lose I ARGS... has netem drop or change the packets that leave the fabric
# towards port I, such as "loss 100%". Every port keeps its carrier. Without ARGS it
# ends that.
fabric_lose() {
	local i=$1
	shift
	tc -n "$FABRIC_NETNS" qdisc del dev "sp$i" root 2>/dev/null
	if [ $# = 0 ]; then return 0; fi
	tc -n "$FABRIC_NETNS" qdisc add dev "sp$i" root netem "$@"
}

# rxe_counters DEV prints DEV's hardware counters, a name and a value per line.
rxe_counters() {
	local f value
	for f in "/sys/class/infiniband/$1/ports/1/hw_counters"/*; do
		case ${f##*/} in lifespan) continue ;; esac
		read -r value <"$f" && printf "%s %s\n" "${f##*/}" "$value"
	done
}

# snapshot prints one line for each network namespace, netdevice, RDMA device and RDMA
# resource, sorted. Addresses, states and counters are omitted, so that two snapshots of
# the same objects are equal.
snapshot() {
	local ns
	{
		for ns in /sys/class/net/*; do
			if [ -d "$ns" ]; then printf 'netdev %s\n' "${ns##*/}"; fi
		done
		for ns in /run/netns/*; do
			if [ ! -e "$ns" ]; then continue; fi
			ns=${ns##*/}
			printf 'netns %s\n' "$ns"
			ip -n "$ns" -o link show | awk -F': ' -v ns="$ns" '{ sub(/@.*/, "", $2); print "netdev " $2 " in " ns }'
		done
		for ns in /sys/class/infiniband/*; do
			if [ -e "$ns" ]; then printf 'rdma %s\n' "${ns##*/}"; fi
		done
		# A line looks like: link snrxe0/1 lqpn 17 type RC state RTS ... comm X
		# Queue pairs and completion queues of the kernel belong to the device.
		printf 'resource show %s\n' qp cq mr pd cm_id ctx | rdma -f -b - 2>/dev/null | awk '!/comm \[/ {
			who = ""; for (i = 3; i < NF; i++) if ($i == "pid") who = who " pid " $(i + 1)
			print $2 " " $3 " " $4 who }'
	} | sort
}

# snapshot_differs FILE reports whether there are objects that FILE lacks. It does not
# use the status of a pipeline, which with pipefail would be that of a grep in snapshot.
snapshot_differs() { [ -n "$(snapshot | comm -13 "$1" -)" ]; }

# snapshot_same FILE is the opposite of snapshot_differs.
snapshot_same() { ! snapshot_differs "$1"; }

# leaks FILE compares with the snapshot in FILE, prints the objects that have been left
# since then, and fails if there are any. The kernel frees some objects a moment after
# their owner ends: leaks waits up to 5 s.
leaks() {
	poll 5 snapshot_same "$1" && return 0
	snapshot | comm -13 "$1" - | sed 's/^/left behind: /'
	return 1
}
