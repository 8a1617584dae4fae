package main

import (
	"flag"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

// options has the values of the flags.
type options struct {
	device    string
	gidIndex  int
	port      int
	size      int
	iters     int
	mtu       int
	rxDepth   int
	events    bool
	transport fabric.Transport
	tcpPort   int
	host      string // empty: be the server
}

func parseOptions(args []string) (options, error) {
	o := options{transport: fabric.RC}
	fs := flag.NewFlagSet("pingpong", flag.ContinueOnError)
	fs.StringVar(&o.device, "d", "", "RDMA `device` (default the first one)")
	fs.IntVar(&o.gidIndex, "g", -1, "`index` of the local GID (default: chosen)")
	fs.IntVar(&o.port, "i", 1, "`port` of the RDMA device")
	fs.IntVar(&o.size, "s", 4096, "`bytes` in a message")
	fs.IntVar(&o.iters, "n", 1000, "`number` of exchanges")
	fs.IntVar(&o.mtu, "m", 1024, "path MTU in `bytes`")
	fs.IntVar(&o.rxDepth, "r", 500, "`number` of receives to post at a time")
	fs.BoolVar(&o.events, "e", false, "sleep on completion events instead of polling")
	fs.IntVar(&o.tcpPort, "p", 18515, "TCP `port` to exchange addresses over")
	uc := fs.Bool("uc", false, "unreliable connection, as ibv_uc_pingpong has it")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if *uc {
		o.transport = fabric.UC
	}
	if o.size < 1 || o.iters < 1 || o.rxDepth < 1 {
		return o, fmt.Errorf("-s, -n and -r must be positive")
	}
	switch fs.NArg() {
	case 0:
	case 1:
		o.host = fs.Arg(0)
	default:
		return o, fmt.Errorf("one host at most, not %q", fs.Args())
	}
	return o, nil
}
