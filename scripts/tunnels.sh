# shellcheck shell=bash
# Sourced after product.sh, networks.sh and measure.sh by a script that has the
# functions measure, card_up and in_turn (scripts/bench-inside): the group "tunnels",
# TCP through the kernel's tunnels over the card, a copy loop and veth, with standard
# and with jumbo frames; and the copy loop itself.

TUNNELS=(none vxlan geneve gre)

# copy_loop_up has a process read frames from a TAP device sn0 in snhost and write
# them to a macvtap on the LAN's card, and back: what the card does in the least.
copy_loop_up() {
	lan_up || die "no LAN"
	ip netns add snhost || die "no namespace for the copy loop"
	coproc COPY { "$MEASURE" serve relay/macvtap snhost snunit snlan eth1 2>>"$LOGS/copy-loop.log"; }
	copy_loop_pid=$COPY_PID copy_loop_in=${COPY[1]}
	host_up snhost 10.77.0.2/24 || die "the copy loop's netdevice has no carrier; see $LOGS/copy-loop.log"
	ip -n snhost link set sn0 mtu "$LAN_MTU" || die "no MTU of $LAN_MTU"
}

# copy_loop_down ends it, if there is one.
copy_loop_down() {
	if [ -z "${copy_loop_pid:-}" ]; then return 0; fi
	exec {copy_loop_in}>&-
	wait "$copy_loop_pid"
	copy_loop_pid=''
	ip netns delete snhost
	lan_down
}

prepare_tunnels() {
	modprobe -a vxlan geneve ip_gre 2>/dev/null
	keys_make "${private:?}" || die "no keys"
	if [ ! -e /run/netns/snpa ]; then networks_up "${private:?}" || die "no networks to compare with"; fi
}

# tunnel_end KIND NETNS DEVICE HERE THERE ADDRESS makes one end of a tunnel.
tunnel_end() {
	local ns=$2 dev=$3 here=$4 there=$5 mtu around kind
	case $1 in
	vxlan) around=50 kind=(vxlan id 89 "local" "$here" remote "$there" dstport 4789 dev "$dev") ;; # IPv4, UDP, VXLAN, Ethernet
	geneve) around=50 kind=(geneve id 89 remote "$there") ;;                                       # IPv4, UDP, Geneve, Ethernet
	gre) around=38 kind=(gretap "local" "$here" remote "$there") ;;                                # IPv4, GRE, Ethernet
	esac
	mtu=$(ip netns exec "$ns" cat "/sys/class/net/$dev/mtu") &&
		ip -n "$ns" link add tunnel0 mtu $((mtu - around)) type "${kind[@]}" &&
		ip -n "$ns" addr add "$6/24" dev tunnel0 && ip -n "$ns" link set tunnel0 up
}

# tunnel SUBJECT MTU NETNS DEVICE ADDRESS NETNS DEVICE ADDRESS measures all tunnels
# from the first to the second namespace, where iperf3 answers.
tunnel() {
	local subject=$1 mtu=$2 ns=$3 dev=$4 here=$5 ns2=$6 dev2=$7 there=$8 kind to
	for kind in "${TUNNELS[@]}"; do
		to=$there
		if [ "$kind" != none ]; then
			to=10.89.0.2
			tunnel_end "$kind" "$ns" "$dev" "$here" "$there" 10.89.0.1 || die "no tunnel $kind over $subject"
			tunnel_end "$kind" "$ns2" "$dev2" "$there" "$here" "$to" || die "no tunnel $kind back over $subject"
		fi
		measure "tunnel-$kind" "$subject" "$mtu" 1 "tcp:Mbit/s" iperf tcp "$ns" "$to" "${iperf_seconds:?}"
		measure "tunnel-$kind" "$subject" "$mtu" 1 "tcp-reverse:Mbit/s" iperf tcp "$ns" "$to" "${iperf_seconds:?}" -R
		if [ "$kind" != none ]; then ip -n "$ns" link delete tunnel0 && ip -n "$ns2" link delete tunnel0; fi
	done
}

tunnels_round() {
	local subject
	for LAN_MTU in 1500 9000; do
		while read -r subject; do
			case $subject in
			splitnic)
				card_up
				iperf_start snlan || die "no iperf3 on the LAN"
				tunnel "$subject" "$LAN_MTU" snhost sn0 10.77.0.2 snlan lan0 10.77.0.1
				iperf_stop snlan
				card_down
				;;
			copy-loop)
				copy_loop_up
				iperf_start snlan || die "no iperf3 on the LAN"
				tunnel "$subject" "$LAN_MTU" snhost sn0 10.77.0.2 snlan lan0 10.77.0.1
				iperf_stop snlan
				copy_loop_down
				;;
			veth)
				network_set_mtu veth "$LAN_MTU" || die "cannot set the MTU of veth to $LAN_MTU"
				iperf_start snpb || die "no iperf3"
				tunnel "$subject" "$LAN_MTU" snpa cable 10.88.0.1 snpb cable 10.88.0.2
				iperf_stop snpb
				;;
			esac
		done < <(in_turn splitnic copy-loop veth)
	done
}
