package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/units"
)

// directFlags are the flags of `splitnic host` about direct connections to other hosts.
type directFlags struct{ memory string }

func (f *directFlags) add(flags *pflag.FlagSet, d *daemon.Direct) {
	boolVar(flags, &d.On, "direct", true,
		"connect directly to other hosts of the I/O unit, if it permits that: frames then bypass the I/O unit")
	inGroup(flags, performanceFlags)
	flags.IntVar(&d.Peers, "direct-peers", 64, "maximum number of direct connections")
	flags.DurationVar(&d.Idle, "direct-idle", time.Minute, "end a direct connection after this long without a frame")
	flags.StringVar(&f.memory, "direct-memory", "512Mi",
		"maximum memory to register for all direct connections together, such as 1G or 1Gi, in powers of 1024")
	advanced(flags, performanceFlags)
	flags.DurationVar(&d.Grace, "direct-grace", 2*time.Second,
		"end direct connections after this long without an I/O unit that permits them")
	advanced(flags, reliabilityFlags)
}

func (f *directFlags) complete(d *daemon.Direct) (err error) {
	d.Memory, err = units.Memory(f.memory)
	if err == nil && d.Memory == 0 {
		err = errors.New("must be above 0; --direct=no disables direct connections")
	}
	if err != nil {
		err = exit.Usagef("advanced.direct-memory: %w", err)
	}
	return errors.Join(err, positive("advanced.direct-idle", d.Idle), positive("advanced.direct-grace", d.Grace),
		between("advanced.direct-peers", d.Peers, 1, maxHostDirectPeers, ""))
}

// maxHostDirectPeers is the maximum of advanced.direct-peers, more than fit into the memory of any
// machine.
const maxHostDirectPeers = 4096
