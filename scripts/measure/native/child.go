package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is a subject's process, in the process that measures.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
}

// startChild starts the process of s and returns when it is ready.
func startChild(ctx context.Context, s subject, st *topology) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "serve", s.String(), st.host, st.middle, st.lan, st.nic)}
	c.cmd.Stderr = os.Stderr
	c.cmd.Cancel = func() error { return c.in.Close() }
	c.cmd.WaitDelay = 5 * time.Second
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.answers = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := c.answer(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *child) answer() (counters, error) {
	var r reply
	if err := c.answers.Decode(&r); err != nil {
		return counters{}, fmt.Errorf("the process of the subject does not answer: %w", err)
	}
	if r.Error != "" {
		return counters{}, errors.New(r.Error)
	}
	return r.Counters, nil
}

// do sends a command to the process, and returns the counters of its answer.
func (c *child) do(command string) (counters, error) {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return counters{}, err
	}
	return c.answer()
}

// cpu returns the processor time that the process has used.
func (c *child) cpu() (time.Duration, error) {
	var ts unix.Timespec
	// MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel; clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^c.cmd.Process.Pid<<3|2), &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

func (c *child) close() error {
	_ = c.in.Close()
	err := c.cmd.Wait()
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("the process of the subject: %w", err)
	}
	return nil
}
