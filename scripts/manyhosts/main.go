// Command manyhosts has many hosts connect to one I/O unit at the same moment and
// counts what became of them. Both halves are in this process, with a fabric in
// memory between them; the hosts' netdevices cost nothing, and the I/O unit's ports
// are macvtaps in a network namespace of their own (-ports macvtap), or cost nothing
// either (-ports none).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manyhosts:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("manyhosts", flag.ContinueOnError)
	hosts := flags.Int("hosts", 400, "hosts that connect at once")
	ports := flags.String("ports", macvtapPorts, "the I/O unit's ports: macvtap, or none")
	rounds := flags.Int("rounds", 3, "how often")
	busy := flags.Int("busy", 0, "processes beside that use a processor each")
	stay := flags.Duration("stay", 3*time.Second, "how long the hosts stay once all of them are in")
	within := flags.Duration("within", time.Minute, "how long to wait for all of them")
	verbose := flags.Bool("v", false, "say what the hosts said")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *hosts < 1 || *rounds < 1 || *busy < 0 {
		return errors.New("usage: manyhosts [-hosts N] [-ports macvtap|none] [-rounds N] [-busy N] " +
			"[-stay D] [-within D] [-v]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	idle, err := occupy(*busy)
	if err != nil {
		return err
	}
	defer idle()
	fmt.Println(header)
	for range *rounds {
		r, err := gather(ctx, crowd{hosts: *hosts, ports: *ports, stay: *stay, within: *within})
		if err != nil {
			return err
		}
		fmt.Println(r)
		if *verbose {
			for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
				fmt.Printf("%9d x %s\n", r.reasons[why], why)
			}
		}
	}
	return nil
}

// occupy starts processes that use a processor each, and returns what ends them.
func occupy(n int) (end func(), err error) {
	// Pdeathsig is sent when the thread ends that has started them, so that one
	// is to stay.
	runtime.LockOSThread()
	var loops []*exec.Cmd
	end = func() {
		for _, c := range loops {
			_ = c.Process.Kill()
			_ = c.Wait() // it says that it was killed
		}
	}
	for range n {
		c := exec.Command("sh", "-c", "while :; do :; done")
		// They end with this process, however that does.
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			end()
			return nil, fmt.Errorf("starting a process that is busy: %w", err)
		}
		loops = append(loops, c)
	}
	return end, nil
}
