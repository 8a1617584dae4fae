// Command attacks is a hostile host that keeps at it, for scripts/bench-attacks,
// which measures what an honest host beside it notices.
//
//	attacks classes                            the classes of attacks, a line each
//	attacks run [FLAGS] CLASS                  attack until SIGTERM; prints how often
//	attacks native ROUNDS RESULTS [CLASS...]   measure without RDMA devices, at full speed
//	attacks report RESULTS JSON                the table of results, and the document
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/test/attacks"
	"github.com/splitnic/splitnic/verbs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "classes":
		for _, c := range attacks.Classes() {
			fmt.Println(c.Name)
		}
		return nil
	case len(args) > 1 && args[0] == "run":
		return attack(args[1:])
	case len(args) > 2 && args[0] == "native":
		rounds, err := strconv.Atoi(args[1])
		if err != nil || rounds < 1 {
			return fmt.Errorf("%q is no number of rounds", args[1])
		}
		return native(rounds, args[2], args[3:])
	case len(args) == 3 && args[0] == "report":
		return report(args[1], args[2], os.Stdout)
	default:
		return errors.New("usage: attacks classes | run [FLAGS] CLASS | native ROUNDS RESULTS [CLASS...] | report RESULTS JSON")
	}
}

// attack attacks until SIGTERM, and prints how often it has done what it does.
func attack(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("attacks run", flag.ExitOnError)
	address := flags.String("iounit", "", "address and port of the I/O unit")
	from := flags.String("from", "", "local address to come from")
	device := flags.String("device", "", "RDMA device")
	key := flags.String("key", "", "file of a key that the I/O unit trusts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	class, ok := attacks.ClassOf(flags.Arg(0))
	if !ok {
		return fmt.Errorf("there is no class %q", flags.Arg(0))
	}
	to := attacks.Target{
		// Under emulation nobody answers as quickly as the default says.
		Address: *address, From: *from, Timing: fabric.Timing{Timeout: 18}, Patience: time.Minute,
	}
	var err error
	if to.Key, err = attacks.LoadKey(*key); err != nil {
		return err
	}
	c, err := verbs.Open(*device)
	if err != nil {
		return err
	}
	to.Device = c
	var done atomic.Uint64
	err = class.Run(ctx, to, &done)
	fmt.Println(done.Load())
	return errors.Join(err, c.Close())
}
