package verbs

// Option is an option of Open.
type Option func(*config)

// config is where queue pairs of a Context are.
type config struct {
	port     int
	gidIndex int // -1: choose
	hint     GIDHint
}

func defaultConfig() config { return config{port: 1, gidIndex: -1} }

// WithPort makes queue pairs on this port of the device, from 1 on. The
// default is 1.
func WithPort(port int) Option { return func(c *config) { c.port = port } }

// WithGIDIndex takes this entry of the GID table instead of choosing one.
func WithGIDIndex(index int) Option { return func(c *config) { c.gidIndex = index } }

// WithGIDHint narrows the choice of the GID.
func WithGIDHint(h GIDHint) Option { return func(c *config) { c.hint = h } }
