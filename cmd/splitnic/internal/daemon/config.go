// Package daemon runs an endpoint of splitnic, by a configuration that says
// everything: it opens what the endpoint works with, puts it together, serves its
// status and metrics, and reloads.
package daemon

import (
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// Common is the configuration that both endpoints have.
type Common struct {
	Version string // of this program
	Name    string // that the peer knows this one by; empty for the default

	LogLevel slog.Level
	LogJSON  bool

	Keys       Keys
	ConfigFile string
	// Reread reads again what a reload may change. late are the other settings
	// that have changed meanwhile.
	Reread func() (s Sources, late []string, err error)

	Adapter
	NetNS string // of the netdevice or network card

	Queues           int // 0 for the default
	Handlers         Handlers
	Latency          *steer.Classes // nil without a latency queue
	Messaging        messaging.Config
	HandshakeTimeout time.Duration

	StatusSocket string // empty for the default
	Metrics      string // address to serve metrics on, empty for none
	// MetricsConfig is a file in the web-config format of Prometheus' exporter toolkit,
	// empty for neither TLS nor authentication.
	MetricsConfig string
}

// Sources is what a reload reads again.
type Sources struct {
	Keys          Keys
	Policy        string // file, empty for none
	MetricsConfig string // file, empty for none
}

// Host is the configuration of a host.
type Host struct {
	Common
	IOUnits    []string
	State      string // directory for what the next process is to know; empty for none
	Netdevice  string
	Port       vhostuser.Address // zero for a TAP device
	ZeroCopy   int64             // bytes of memory of a front end of Port's to register at most
	MAC        protocol.MAC      // zero for the I/O unit's choice
	MaxMTU     int
	Offloads   vnet.Offloads
	Modes      []protocol.Mode
	Plain      bool
	TxQueueLen int
	FailBack   time.Duration
	Standby    bool
	Persist    bool
	Movable    bool
	Direct     Direct
}

// Agent is the configuration of an agent: that of its cards, as far as a request for one
// does not say otherwise.
type Agent struct {
	Host
	MaxCards int
}

// Direct is what a host does about direct connections to other hosts.
type Direct struct {
	On          bool
	Peers       int
	Idle, Grace time.Duration
	Memory      int64
}

// IOUnit is the configuration of an I/O unit.
type IOUnit struct {
	Common
	Listen    string
	LAN       string // as lan.ParseSpec has it
	Kind      lan.Kind
	NIC       string
	Policy    string // file, empty for none
	Modes     []protocol.Mode
	MaxHosts  int
	MaxMemory int64 // 0 for no limit

	Direct      bool // hosts may have direct connections
	DirectAfter int  // packets a second
	DirectPeers int  // of a host
}
