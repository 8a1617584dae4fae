package verbs

// Option is an option of Open.
type Option func(*config)

// config has the port, GID and partition of the queue pairs of a Context.
type config struct {
	port     int
	gidIndex int // -1: chosen by ChooseGID
	hint     GIDHint
	pkey     uint16 // 0: the first entry of the table
}

func defaultConfig() config { return config{port: 1, gidIndex: -1} }

// WithPort sets the port of queue pairs, counted from 1. The default is 1.
func WithPort(port int) Option { return func(c *config) { c.port = port } }

// WithGIDIndex sets the GID of queue pairs to this entry of the GID table; by default the
// entry is chosen. On InfiniBand, queue pairs use GIDs only with this option, and only if
// the peer does too. Otherwise they address by LID only.
func WithGIDIndex(index int) Option { return func(c *config) { c.gidIndex = index } }

// WithPKey sets the partition key of queue pairs, which must be in the port's table (see
// ChoosePKey). The default is the first entry of the table.
func WithPKey(key uint16) Option { return func(c *config) { c.pkey = key } }

// WithGIDHint sets a hint for the choice of the GID.
func WithGIDHint(h GIDHint) Option { return func(c *config) { c.hint = h } }
