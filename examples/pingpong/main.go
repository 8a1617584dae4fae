// Command pingpong sends messages to and fro over an RDMA connection. It talks
// to ibv_rc_pingpong(1) and, with -uc, to ibv_uc_pingpong(1) of rdma-core, on
// either side:
//
//	pingpong [flags]           # server: waits for a client
//	pingpong [flags] HOST      # client: connects to the server at HOST
//
// It is the smallest complete program on package verbs: open a device, make a
// queue pair, exchange addresses, connect, post, poll, and sleep when there is
// nothing to poll.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// options are what the flags say.
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

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	s, err := newSession(o)
	if err != nil {
		return err
	}
	defer s.close()
	tcp := net.JoinHostPort(o.host, strconv.Itoa(o.tcpPort))
	if o.host != "" {
		err = s.dial(ctx, tcp)
	} else {
		var ln net.Listener
		if ln, err = net.Listen("tcp", tcp); err == nil {
			err = s.accept(ctx, ln)
			ln.Close()
		}
	}
	if err != nil {
		return err
	}
	took, err := s.play(ctx, o.host != "")
	if err != nil {
		return err
	}
	bits := float64(o.size) * float64(o.iters) * 2 * 8
	us := float64(took.Nanoseconds()) / 1e3
	fmt.Printf("%d iterations of %d bytes in %v: %.2f usec/iter, %.2f Mbit/sec\n",
		o.iters, o.size, took, us/float64(o.iters), bits/us)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}
