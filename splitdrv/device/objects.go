package device

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/limit"
)

// The objects of the package, which refer to each other.

// Config has the settings of a Device.
type Config struct {
	// Open opens the device; each time the same one, by its name.
	Open func() (fabric.Device, error)
	Log  *slog.Logger
	// Retry is the interval at which a device that is gone is looked for; default 1 s. The first
	// time is one interval after the loss: a device that is being reset is there for a moment.
	Retry time.Duration
}

// Device is an RDMA device, open or gone. It implements fabric.Device.
type Device struct {
	cfg   Config
	name  string
	lines limit.Log
	ctx   context.Context // done when the device is closed
	stop  context.CancelFunc
	tasks sync.WaitGroup

	trying sync.Mutex // held while something is tried; taken before mu

	mu     sync.Mutex // guards the following fields
	closed bool
	now    *opening // nil while the device is gone
	limits fabric.Limits
	driver string
	silent bool
	record record
	lost   map[*opening]struct{} // lost openings that are still in use
	errs   []error               // of closing lost openings
}

type opening struct {
	fabric.Device
	forget context.CancelFunc // ends the reader of events
	mtu    portMTU
	// Guarded by Device.trying.
	windows     trial[conform.Windows]
	indications trial[string] // why messages about data are not to be relied on

	// Guarded by Device.mu.
	lost    error // nil while the device is there
	domains map[*domain]struct{}
	closing bool
}

// portMTU is the last answer of a device about its port's MTU.
type portMTU struct {
	changes atomic.Uint64 // events about ports

	mu    sync.Mutex // held during a query
	bytes int
	err   error
	asked time.Time
	after uint64 // changes before it was asked
}

// domain is a protection domain that knows the numbers of its objects, so that events about them
// find their session. The objects themselves are those of the device: nothing lies between a
// session and its queues.
type domain struct {
	fabric.Domain
	device *Device
	of     *opening

	mu       sync.Mutex // guards the following fields
	qps      map[uint32]struct{}
	cqs      map[uint32]struct{}
	tell     func(error)
	portDown func(error)
	err      error // the first failure
}

// trial is the last trial of something that an opening says it has.
type trial[R any] struct {
	result R
	sure   bool
	again  time.Time // when it may be made again if it is not sure
}
