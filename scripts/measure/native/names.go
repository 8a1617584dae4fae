package native

// Metrics.
const (
	throughput = "throughput"
	rate       = "rate"
	offered    = "offered"
	frameSize  = "frame size"
	median50   = "p50"
	median99   = "p99"
	average    = "average"
	cpuMachine = "processor time, machine"
	// Of one endpoint, or of the relay. noCopy is without the copy that the fabric in memory makes
	// in the place of adapters.
	cpuEndpoint = "processor time, endpoint"
	noCopy      = "processor time, endpoint, without the fabric's copy"
	callMetric  = "system calls, endpoint"
	idleMetric  = "use of a processor, endpoint"
)

// The kinds of subjects.
const (
	splitnic = "splitnic"
	relay    = "relay"
	veth     = "veth"
	bridge   = "bridge"

	// Other ways to encrypt, of the kernel but for wireguardGo.
	wireguard   = "wireguard"
	wireguardGo = "wireguard-go"
	ipsec       = "ipsec"
	macsec      = "macsec"
)

// roundTrip is the measurement of the times of round trips.
const roundTrip = "rtt"

// idle is the group of what subjects without traffic use.
const idle = "idle"

// The measurements of vhost-user ports, with frames of 64 bytes and one queue, and their
// subjects.
const (
	vhostOut  = "vhost.out"  // from the netdevice into the messaging layer
	vhostIn   = "vhost.in"   // from the messaging layer to the netdevice
	vhostCard = "vhost.card" // from netdevice to LAN, through both endpoints

	portSubject = "vhost-user" // DPDK's testpmd is at the netdevice, and at the LAN
	tapSubject  = "TAP"        // a packet socket sends, and the kernel receives and drops
)
