package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/vhostuser"
)

// Options of testpmd that say what it does. It only transmits, or only receives, from its start
// on; or, on command, it sends by one of two ports what it has received by the other.
var (
	transmits  = []string{"--forward-mode=txonly", fmt.Sprint("--txpkts=", vhostFrame), "--port-topology=loop"}
	receives   = []string{"--forward-mode=rxonly", "--port-topology=loop"}
	circulates = []string{fmt.Sprint("--txpkts=", vhostFrame), "--port-topology=paired", "--burst=64"}
)

// polled is the processor of testpmd's polling thread.
const polled = 1

// testpmd starts DPDK's testpmd with virtio-user devices. testpmd executes commands on
// processor 0. One thread, on processor polled, polls all devices. tell sends commands.
func (v *vhostBed) testpmd(
	ctx context.Context, devices []string, options ...string,
) (tell func(commands ...string) error, err error) {
	if err := v.spare(polled); err != nil {
		return nil, err
	}
	args := []string{"--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry", "-l", fmt.Sprint("0,", polled)}
	for i, d := range devices {
		args = append(args, fmt.Sprintf("--vdev=net_virtio_user%d,queue_size=1024,%s", i, d))
	}
	args = append(args, "--", "--no-mlockall", "--total-num-mbufs=8192", "--nb-cores=1",
		"--no-flush-rx", "--interactive")
	c := exec.CommandContext(ctx, "dpdk-testpmd", append(args, options...)...)
	c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+v.dir)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	tell = func(commands ...string) error {
		_, err := io.WriteString(in, strings.Join(commands, "\n")+"\n")
		return err
	}
	v.later(func() error {
		if tell("quit") != nil {
			_ = c.Process.Kill()
		}
		_ = c.Wait() // it may have been killed
		return nil
	})
	return tell, nil
}

// spare keeps the threads of this process off a processor until close, if there is another
// processor. Otherwise the kernel runs a worker on the processor on which testpmd has woken the
// worker, and the two take turns.
func (v *vhostBed) spare(processor int) error {
	all := cpus.Allowed()
	rest := all.Without(cpus.List{processor})
	if len(rest) == 0 {
		return nil
	}
	v.later(func() error { return confine(all) })
	return confine(rest)
}

// confine restricts the threads of this process, and the threads that they start, to these
// processors.
func confine(to cpus.List) error {
	set := to.Set()
	for range 2 { // the second time is for threads that were started meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
	}
	return nil
}

// port opens a vhost-user port, and starts testpmd at it.
func (v *vhostBed) port(ctx context.Context, mode ...string) (*vhostuser.Device, error) {
	a := vhostuser.Address{Path: filepath.Join(v.dir, "port")}
	d, err := vhostuser.Open(vhostuser.Config{Address: a, Pairs: 1, Log: quiet})
	if err != nil {
		return nil, err
	}
	v.later(d.Close)
	_, err = v.testpmd(ctx, []string{"path=" + a.Path}, append(mode, "--auto-start")...)
	return d, err
}
