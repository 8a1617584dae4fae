// Package daemon runs an endpoint of splitnic from a complete configuration. It opens the
// devices that the endpoint uses, assembles the endpoint, serves its status and metrics, and
// reloads.
package daemon

import (
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// Common is the configuration that both endpoints have.
type Common struct {
	Version string // of this program
	Name    string // of this endpoint, for its peers; empty for the default

	LogLevel slog.Level
	LogJSON  bool

	Keys       Keys
	ConfigFile string
	// Reread reads the settings again that a reload may change. late has the other settings
	// that have changed in the meantime.
	Reread func() (s Sources, late []string, err error)

	Adapter
	NetNS string // of the netdevice or network card

	Queues           int // 0 for the default
	Handlers         Handlers
	Latency          *steer.Classes // nil without a latency queue
	Messaging        messaging.Config
	Encrypt          seal.Wish
	Ciphers          []seal.Cipher // nil for the default
	KeyLog           *seal.KeyLog  // of openKeyLog
	HandshakeTimeout time.Duration

	StatusSocket string // empty for the default
	Metrics      string // address to serve metrics on, empty for none
	// MetricsConfig is a file in the web-config format of Prometheus' exporter toolkit. If it
	// is empty, there is neither TLS nor authentication.
	MetricsConfig string
}

// Sources has the settings that a reload reads again.
type Sources struct {
	IOUnit        bool // the keys are those of an I/O unit, otherwise of a host; for Check
	Keys          Keys
	Policy        string // file, empty for none
	MetricsConfig string // file, empty for none
	LogLevel      slog.Level
}

// Host is the configuration of a host.
type Host struct {
	Common
	IOUnits    []string
	State      string // directory with data for the next process; empty for none
	Netdevice  string
	Port       vhostuser.Address // zero for a TAP device
	ZeroCopy   int64             // most bytes of the memory of Port's front end to register
	MAC        protocol.MAC      // zero: the I/O unit chooses
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

// Agent is the configuration of an agent. Host has the settings of its cards, which the request
// for a card may override.
type Agent struct {
	Host
	MaxCards int
}

// Direct is the configuration of a host's direct connections to other hosts.
type Direct struct {
	direct.Settings
	Memory int64 // for all connections together
}

// IOUnit is the configuration of an I/O unit.
type IOUnit struct {
	Common
	Listen    string
	LAN       string // in the syntax of lan.ParseSpec
	Kind      lan.Kind
	NIC       string
	Policy    string // file, empty for none
	Modes     []protocol.Mode
	MaxHosts  int
	MaxMemory int64 // 0 for no limit

	Direct      bool // hosts may have direct connections
	DirectAfter int  // packets per second
	DirectPeers int  // most connections of a host
}
