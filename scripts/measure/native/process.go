package native

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is the process of a subject that moves frames itself, so that the cost of the subject can
// be distinguished from the cost of measuring. It ends at the end of its standard input.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startProcess starts the process of s, and returns when it is ready.
func startProcess(s subject, st *topology) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, "serve", s.String(), st.host, st.middle, st.lan, st.nic)
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
	p := &process{c, in}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("the process of the subject is not ready: %w", err), p.close())
	}
	return p, nil
}

// cpu returns the processor time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	var ts unix.Timespec
	// MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel; clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|2), &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

func (p *process) close() error {
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the process of the subject: %w", err)
	}
	return nil
}
