package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A subject that moves frames itself is a process of its own, so that what it
// costs can be told from what the measuring costs. It obeys commands on its
// standard input and answers each with a line of JSON:
//
//	stats        its counters
//	profile FILE begins a profile of its use of processors
//	unprofile    ends it
//
// It ends when its standard input does.

// counters are what a subject's process counts.
type counters struct {
	Frames  [2]uint64 // moved: from the host to the LAN, and back
	Bytes   [2]uint64 // in them, with the virtio_net_hdr
	Refused uint64    // by the device that they were for
	// Allocations of the process since its start, before and after the others
	// were read.
	MallocsBefore, MallocsAfter uint64
}

// sub is what was moved since o was read.
func (c counters) sub(o counters) counters {
	for i := range c.Frames {
		c.Frames[i] -= o.Frames[i]
		c.Bytes[i] -= o.Bytes[i]
	}
	c.Refused -= o.Refused
	return c
}

// frames is their number in both directions.
func (c counters) frames() float64 { return float64(c.Frames[0] + c.Frames[1]) }

// reply is the answer to a command.
type reply struct {
	Error    string
	Counters counters
}

// mover is a subject within its process.
type mover interface {
	// counters leaves out allocations.
	counters() (counters, error)
	close() error
}

// serve is the process of a subject in a topology.
func serve(s subject, st *topology) error {
	signal.Ignore(os.Interrupt) // the process that measures ends this one
	open := newRelay
	if s.what == splitnic {
		open = newEndpoints
	}
	m, err := open(s, st)
	if err != nil {
		return err
	}
	return errors.Join(carryOut(m, os.Stdin, os.Stdout), m.close())
}

// carryOut carries out commands until there are no more.
func carryOut(m mover, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(reply{}); err != nil {
		return err
	}
	var profile *os.File
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r reply
		var err error
		command, arg, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "stats":
			before := mallocs()
			if r.Counters, err = m.counters(); err == nil {
				r.Counters.MallocsBefore, r.Counters.MallocsAfter = before, mallocs()
			}
		case "profile":
			if profile, err = os.Create(arg); err == nil {
				err = pprof.StartCPUProfile(profile)
			}
		case "unprofile":
			pprof.StopCPUProfile()
			err = profile.Close()
		default:
			err = fmt.Errorf("unknown command %q", command)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

func mallocs() uint64 {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return mem.Mallocs
}

// child is a subject's process as seen by the one that measures.
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

// do has the process carry out a command.
func (c *child) do(command string) (counters, error) {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return counters{}, err
	}
	return c.answer()
}

// cpu is the processor time that the process has used.
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
