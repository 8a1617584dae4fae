package verbs

// Option is an option of Open.
type Option func(*config)

// config is where queue pairs of a Context are.
type config struct {
	port     int
	gidIndex int // -1: choose
	hint     GIDHint
	pkey     uint16 // 0: the first of the table
}

func defaultConfig() config { return config{port: 1, gidIndex: -1} }

// WithPort makes queue pairs on this port of the device, from 1 on. The
// default is 1.
func WithPort(port int) Option { return func(c *config) { c.port = port } }

// WithGIDIndex takes this entry of the GID table instead of choosing one. On InfiniBand,
// queue pairs address by GID with it, if their peers do too, and otherwise by LID only.
func WithGIDIndex(index int) Option { return func(c *config) { c.gidIndex = index } }

// WithPKey makes queue pairs in the partition of this key, which has to be in the
// port's table (see ChoosePKey). The default is the first of the table.
func WithPKey(key uint16) Option { return func(c *config) { c.pkey = key } }

// WithGIDHint narrows the choice of the GID.
func WithGIDHint(h GIDHint) Option { return func(c *config) { c.hint = h } }
