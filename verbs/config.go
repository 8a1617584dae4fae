package verbs

// Option is an option of Open.
type Option func(*config)

// config is how queue pairs of a Context address their peers.
type config struct {
	port         int
	gidIndex     int // -1: choose
	hint         GIDHint
	trafficClass uint8
	hopLimit     uint8
	serviceLevel uint8
}

func defaultConfig() config {
	// Hop limit 64: what IP_DEFTTL is, so that RoCE v2 crosses as many routers
	// as anything else.
	return config{port: 1, gidIndex: -1, hopLimit: 64}
}

// WithPort makes queue pairs on this port of the device, from 1 on. The
// default is 1.
func WithPort(port int) Option { return func(c *config) { c.port = port } }

// WithGIDIndex takes this entry of the GID table instead of choosing one.
func WithGIDIndex(index int) Option { return func(c *config) { c.gidIndex = index } }

// WithGIDHint narrows the choice of the GID.
func WithGIDHint(h GIDHint) Option { return func(c *config) { c.hint = h } }

// WithTrafficClass sets the traffic class (DSCP and ECN) of the packets; the
// default is 0.
func WithTrafficClass(tc uint8) Option { return func(c *config) { c.trafficClass = tc } }

// WithHopLimit sets the hop limit of routed packets; the default is 64.
func WithHopLimit(n uint8) Option { return func(c *config) { c.hopLimit = n } }

// WithServiceLevel sets the InfiniBand service level; the default is 0.
func WithServiceLevel(sl uint8) Option { return func(c *config) { c.serviceLevel = sl } }
