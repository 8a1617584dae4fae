// Package attacks measures how an honest host is affected while another host attacks its I/O
// unit.
package attacks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/test/attacks"
	"github.com/splitnic/splitnic/verbs"
)

// Hostile attacks until ctx is done, and prints how many attacks it has completed.
func Hostile(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("hostile", flag.ExitOnError)
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
		// Under emulation answers take longer than the default timeout.
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
