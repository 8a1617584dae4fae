package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// process is a process that moves the frames of a subject, so that the cost of the subject can
// be distinguished from the cost of measuring. It ends at the end of its standard input.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	pid int // of the process that moves frames, which cmd can have started
}

// start starts a command, which prints the number of the process when it is ready. b ends it.
func start(b *testbed.Bed, name string, args ...string) (*process, error) {
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: c, in: in}
	b.Later(p.close)
	if _, err := fmt.Fscanln(out, &p.pid); err != nil {
		return nil, fmt.Errorf("the process of the subject is not ready: %w", err)
	}
	return p, nil
}

func (p *process) close() error {
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the process of the subject: %w", err)
	}
	return nil
}
