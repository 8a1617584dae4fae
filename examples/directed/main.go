// Command directed makes a file or block device of one machine a block device of another one. A
// third machine owns it: it decides about each request, and no data pass through it. This is the
// smallest complete program with package splitdrv/directed. README.md describes its use.
//
//	directed unit [flags] FILE         # the I/O unit: has the file
//	directed owner [flags] UNIT        # the owner: directs the I/O unit at this address
//	directed requester [flags] OWNER   # the requester: asks the owner at this address
//
// The requester is the server of a Network Block Device of the kernel, /dev/nbd0. The machines
// exchange their RDMA addresses over TCP, without authentication or encryption.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/verbs"
)

var errUsage = errors.New("usage: directed unit FILE | owner UNIT | requester OWNER; -h after the role lists its flags")

// options has the values of the flags.
type options struct {
	device   string
	listen   string
	nbd      string
	readOnly bool
	of       string // the argument: a file or an address
}

func parseOptions(role string, args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("directed "+role, flag.ContinueOnError)
	fs.StringVar(&o.device, "d", "", "RDMA `device` (default the first one)")
	switch role {
	case "unit":
		fs.StringVar(&o.listen, "listen", ":18516", "`address` for the owner")
	case "owner":
		fs.StringVar(&o.listen, "listen", ":18517", "`address` for requesters")
		fs.BoolVar(&o.readOnly, "read-only", false, "allow no writes")
	case "requester":
		fs.StringVar(&o.nbd, "nbd", "/dev/nbd0", "block `device` to serve")
	default:
		return o, errUsage
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() != 1 {
		return o, errUsage
	}
	o.of = fs.Arg(0)
	return o, nil
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	o, err := parseOptions(args[0], args[1:])
	if err != nil {
		return err
	}
	dev, err := open(o.device)
	if err != nil {
		return err
	}
	return errors.Join(play(ctx, args[0], dev, o), dev.Close())
}

// open opens the RDMA device with a name, or the first one.
func open(name string) (fabric.Device, error) {
	if name == "" {
		devs, err := verbs.Devices()
		if err != nil {
			return nil, err
		}
		if len(devs) == 0 {
			return nil, errors.New("there is no RDMA device; for Soft-RoCE: rdma link add rxe0 type rxe netdev eth0")
		}
		name = devs[0].Name
	}
	return device.Open(device.Config{
		Open: func() (fabric.Device, error) { return verbs.Open(name) }, Log: slog.Default(),
	})
}

// play plays a role until ctx ends.
func play(ctx context.Context, role string, dev fabric.Device, o options) error {
	if role == "requester" {
		d, err := newDisk(ctx, dev, o.of)
		if err != nil {
			return err
		}
		return errors.Join(attach(ctx, d, o.nbd), d.close())
	}
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	if role == "unit" {
		return serveUnit(ctx, dev, ln, o.of)
	}
	return serveOwner(ctx, dev, ln, o.of, o.readOnly)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "directed:", err)
		os.Exit(1)
	}
}
