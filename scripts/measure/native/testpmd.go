package native

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// What testpmd does: transmit or receive only, as soon as it has started; or, when it is told
// to, send by one of two ports what it has received by the other.
var (
	transmits  = []string{"--forward-mode=txonly", fmt.Sprint("--txpkts=", vhostFrame), "--port-topology=loop"}
	receives   = []string{"--forward-mode=rxonly", "--port-topology=loop"}
	circulates = []string{fmt.Sprint("--txpkts=", vhostFrame), "--port-topology=paired", "--burst=64"}
)

// testpmd starts DPDK's program with virtio devices at sockets. It has its commands on
// processor 0, and one thread on processor 1, which polls all of them. tell gives it commands.
func (v *vhostBed) testpmd(
	ctx context.Context, devices []string, options ...string,
) (tell func(commands ...string) error, err error) {
	args := []string{"--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry", "-l", "0,1"}
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
