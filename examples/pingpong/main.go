// Command pingpong sends messages back and forth over an RDMA connection. It is compatible with
// ibv_rc_pingpong(1) and, with -uc, ibv_uc_pingpong(1) of rdma-core, on either side:
//
//	pingpong [flags]           # server: waits for a client
//	pingpong [flags] HOST      # client: connects to the server at HOST
//
// It is the smallest complete program with package verbs: it opens a device, makes a queue pair,
// exchanges addresses, connects, posts, polls, and sleeps when there are no completions.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

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
