package lan

// Kind is the name of a kind of LAN interface.
type Kind string

// Facts has what a program has to know about a kind of LAN interface. Whatever depends on the kind
// asks for a fact, and does not compare the kind with others.
type Facts struct {
	Name     Kind
	Argument string // what follows the name and a colon, in help texts: NIC
	Noun     string // what this is: network card
	Example  string // of this: eth1
	Note     string // further explanation in the help text of a flag; may be empty
	When     string // when to use the kind, for the table of docs/choose.md
	// Outside says what is in no network namespace: the ports of something. It is empty if the
	// argument is a netdevice of the kernel. A netdevice is in a network namespace, belongs to one
	// I/O unit at a time, and is prepared with CleanStale and Prepare.
	Outside string
	// Latency is set if a port may have a queue for latency-sensitive frames.
	Latency bool
	// Needs is the capability whose absence prevents every port. The name is empty if there is none.
	Needs Capability
	// Capabilities has the numbers of further capabilities that opening a port takes. Elsewhere has
	// those that it takes as well if the netdevice is not in the initial network namespace.
	Capabilities, Elsewhere []int
	// Module is a module of the kernel that ports need and that may be missing. Without it, Instead
	// is a specification that works. Both are empty if there is none.
	Module, Instead string
}

// Capability is one of capabilities(7).
type Capability struct {
	Name   string
	Number uint
}

// Netdevice reports whether the argument of the kind is a netdevice of the kernel.
func (f Facts) Netdevice() bool { return f.Outside == "" }

// usage returns a specification in help texts.
func (f Facts) usage() string { return string(f.Name) + ":" + f.Argument }

// kind is a row of the table kinds.
type kind struct {
	Facts
	// at returns what ports are opened on. It only examines arg, which is not empty. What arg
	// stands for need not exist.
	at func(arg, netns string) (site, error)
	// suits is Info.Suits for a card that is an Ethernet device. It may be nil.
	suits func(*Info) error
	// dirs returns the directories in which ports make files. It may be nil.
	dirs func(arg string) []string
}

// site is what the ports of one Card are opened on.
type site interface {
	// Info looks up the site.
	Info() (Info, error)
	// open makes a port. Queues and MAC of cfg are set and valid.
	open(cfg Config) (Interface, error)
}
