# shellcheck shell=bash
# Sourced, after ci/softroce/topology.sh, by scripts that compare with networks
# of other kinds: two nodes, the namespaces snpa and snpb, each with a netdevice
# "cable" on the fabric's own switch, and virtual networks between them.
#
#	veth       the cables themselves
#	vxlan      the kernel's Ethernet over UDP
#	wireguard  the kernel's encrypted tunnel, of IP packets
#	taptunnel  Ethernet over UDP by a program, build/taptunnel
#
# The nodes are 10.88.N.1 and 10.88.N.2 in network N of that list.

NETWORKS=(veth vxlan wireguard taptunnel)
TUNNEL_PIDS=()

# network_address NETWORK prints snpb's address there.
network_address() {
	local i
	for i in "${!NETWORKS[@]}"; do
		if [ "${NETWORKS[i]}" = "$1" ]; then printf '10.88.%d.2\n' "$i"; fi
	done
}

# network_device NETWORK prints the name of its netdevices.
network_device() {
	if [ "$1" = veth ]; then printf 'cable\n'; else printf '%s\n' "$1"; fi
}

# network_mtu NETWORK MTU prints MTU, or the most that fits through the fabric
# with what the network puts around a frame, or around a packet.
network_mtu() {
	local most=$FABRIC_MTU
	case $1 in
	vxlan) most=$((most - 50)) ;;     # IPv4, UDP, VXLAN, Ethernet
	wireguard) most=$((most - 80)) ;; # by its own rule, enough for IPv6
	taptunnel) most=$((most - 42)) ;; # IPv4, UDP, Ethernet
	esac
	printf '%d\n' "$(($2 < most ? $2 : most))"
}

# network_set_mtu NETWORK MTU gives both ends that MTU, and the cable what it
# can take unless it is the cable that is meant.
network_set_mtu() {
	local ns
	for ns in snpa snpb; do
		ip -n "$ns" link set cable mtu "$FABRIC_MTU" || return 1
		ip -n "$ns" link set "$(network_device "$1")" mtu "$(network_mtu "$1" "$2")" || return 1
	done
}

# networks_up makes the nodes and all networks. Keys are kept in DIR.
networks_up() {
	local dir=$1 i=0 n ns here there
	modprobe -a veth vxlan wireguard tun 2>/dev/null
	for ns in snpa snpb; do
		i=$((i + 1))
		here=10.88.0.$i there=10.88.0.$((3 - i))
		ip netns add "$ns" && ip -n "$ns" link set lo up || return 1
		ip link add "p$ns" mtu "$FABRIC_MTU" netns "$FABRIC_NETNS" type veth \
			peer name cable mtu "$FABRIC_MTU" netns "$ns" || return 1
		ip -n "$FABRIC_NETNS" link set "p$ns" master br0 up || return 1
		ip -n "$ns" link set cable up && ip -n "$ns" addr add "$here/24" dev cable || return 1
		ip -n "$ns" link add vxlan type vxlan id 88 local "$here" remote "$there" dstport 4789 dev cable || return 1
		ip -n "$ns" link add wireguard type wireguard || return 1
		(umask 077 && wg genkey >"$dir/$ns.key") && wg pubkey <"$dir/$ns.key" >"$dir/$ns.pub" || return 1
		ip netns exec "$ns" build/taptunnel --name taptunnel --local "$here:4790" --remote "$there:4790" &
		TUNNEL_PIDS+=("$!")
	done
	i=0
	for ns in snpa snpb; do
		i=$((i + 1))
		n=snpb
		if [ "$ns" = snpb ]; then n=snpa; fi
		ip netns exec "$ns" wg set wireguard private-key "$dir/$ns.key" listen-port 51820 \
			peer "$(cat "$dir/$n.pub")" endpoint "10.88.0.$((3 - i)):51820" allowed-ips 10.88.2.0/24 || return 1
		poll 10 ip -n "$ns" link set taptunnel up 2>/dev/null || return 1
		for n in 1 2 3; do
			ip -n "$ns" addr add "10.88.$n.$i/24" dev "${NETWORKS[n]}" && ip -n "$ns" link set "${NETWORKS[n]}" up || return 1
		done
	done
	for n in "${NETWORKS[@]}"; do
		poll 20 ip netns exec snpa ping -q -c 1 -W 1 "$(network_address "$n")" >/dev/null || return 1
	done
}

networks_down() {
	local ns
	if [ ${#TUNNEL_PIDS[@]} -gt 0 ]; then
		kill "${TUNNEL_PIDS[@]}" && wait "${TUNNEL_PIDS[@]}"
		TUNNEL_PIDS=()
	fi 2>/dev/null
	for ns in snpa snpb; do
		if [ -e "/run/netns/$ns" ]; then ip netns delete "$ns"; fi
	done
}
