# shellcheck shell=bash
# Sourced after product.sh, networks.sh and measure.sh by a script that has the
# functions measure and in_turn (scripts/bench-inside): the group "overload". More
# UDP than can be carried, through the card and through other networks.

# What is measured of each: the most that arrived at any time, and of that what
# was offered, and what arrived, when 2, 5 and 10 times as much was to be sent.
overload_figures="best:Mbit/s"
for factor in 2 5 10; do overload_figures+=" offered-$factor:of-the-best arrived-$factor:of-the-best"; done

# overload SUBJECT FROM TO ADDRESS measures from one namespace to another.
overload() {
	local kind
	for kind in full segments fragments; do
		measure "overload-$kind" "$1" 1500 1 "$overload_figures" "$MEASURE" overload -time 1s "$kind" "$2" "$3" "$4"
	done
}

prepare_overload() {
	local ns
	keys_make "${private:?}" || die "no keys"
	if [ ! -e /run/netns/snpa ]; then networks_up "${private:?}" || die "no networks to compare with"; fi
	for ns in snpa snpb; do short_memory "$ns"; done
}

# short_memory NETNS has the parts of datagrams that have lost a fragment kept for
# a second instead of 30: they are in the way of what is measured next.
short_memory() { ip netns exec "$1" sysctl -qw net.ipv4.ipfrag_time=1; }

overload_round() {
	local subject
	# shellcheck disable=SC2034 # lan_up reads it
	LAN_MTU=1500
	while read -r subject; do
		case $subject in
		splitnic)
			card_up
			short_memory snlan
			short_memory snhost
			overload splitnic snhost snlan 10.77.0.1
			overload splitnic-back snlan snhost 10.77.0.2
			card_down
			;;
		copy-loop)
			copy_loop_up
			short_memory snlan
			short_memory snhost
			overload copy-loop snhost snlan 10.77.0.1
			copy_loop_down
			;;
		*)
			network_set_mtu "$subject" 1500 || die "cannot set the MTU of $subject"
			overload "$subject" snpa snpb "$(network_address "$subject")"
			;;
		esac
	done < <(in_turn splitnic copy-loop veth wireguard)
}
