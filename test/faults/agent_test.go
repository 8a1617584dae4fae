package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// patience is the time-out of every wait for an expected event.
const patience = 60 * time.Second

// agent runs on each machine. The tests call its exported methods by net/rpc, several at a time.
type agent struct {
	mu    sync.Mutex
	procs []*proc
	flows flows
}

// serveAgent serves calls on c until the other end hangs up.
func serveAgent(c io.ReadWriteCloser) error {
	server := rpc.NewServer()
	if err := server.RegisterName("Agent", &agent{}); err != nil {
		return fmt.Errorf("serving calls: %w", err)
	}
	server.ServeConn(c)
	return nil
}

// Hello is the first reply of an agent.
type Hello struct {
	Mode string // mode of the harness: kvm or tcg
}

// Hello returns the mode of the harness. The agent replies as soon as the machine is up.
func (a *agent) Hello(_ struct{}, h *Hello) error {
	h.Mode = os.Getenv("SPLITNIC_SOFTROCE_MODE")
	return nil
}

// Command is a program to run.
type Command struct {
	Args  []string
	NS    string // network namespace; empty: the initial one
	Input string
	Log   string // for Start: file for standard output and error
}

func (c *Command) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdin = bytes.NewReader([]byte(c.Input))
	return cmd
}

// Result has the output and exit status of a program.
type Result struct {
	Output  string
	Status  int  // -1 after a signal
	Running bool // for Wait: the program has not ended
}

// Run runs a program and waits for its end. A failure of the program is not an error of Run.
func (a *agent) Run(c Command, r *Result) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := c.command(ctx)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// A process that the program leaves behind may hold the pipe open.
	cmd.WaitDelay = time.Second
	if err := netns.Do(c.NS, cmd.Start); err != nil {
		return fmt.Errorf("%q: %w", c.Args, err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if ctx.Err() != nil {
		return fmt.Errorf("%q runs longer than %v; so far it printed:\n%s", c.Args, patience, &out)
	}
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%q: %w", c.Args, err)
	}
	r.Output, r.Status = out.String(), cmd.ProcessState.ExitCode()
	return nil
}

// proc is a program in the background.
type proc struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a program in the background and returns a number for it.
func (a *agent) Start(c Command, id *int) error {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("a log for %q: %w", c.Args, err)
	}
	defer log.Close()
	p := &proc{cmd: c.command(context.Background()), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := netns.Do(c.NS, p.cmd.Start); err != nil {
		return fmt.Errorf("%q: %w", c.Args, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // Wait reports the status
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.procs = append(a.procs, p)
	*id = len(a.procs) - 1
	return nil
}

func (a *agent) proc(id int) (*proc, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id < 0 || id >= len(a.procs) {
		return nil, fmt.Errorf("no program has the number %d", id)
	}
	return a.procs[id], nil
}

// Signal has the arguments of the agent's method Signal: a signal and a program in the background.
type Signal struct {
	ID     int
	Signal unix.Signal
}

// Signal sends a signal to a program in the background. It is not an error if the program has
// ended.
func (a *agent) Signal(s Signal, _ *struct{}) error {
	p, err := a.proc(s.ID)
	if err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(s.Signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v to %q: %w", s.Signal, p.cmd.Args, err)
	}
	return nil
}

// Wait has the arguments of the agent's method Wait: a program in the background, and a time-out.
type Wait struct {
	ID      int
	Timeout time.Duration
}

// Wait waits for the end of the program, up to the time-out.
func (a *agent) Wait(w Wait, r *Result) error {
	p, err := a.proc(w.ID)
	if err != nil {
		return err
	}
	if !ended(p.done, w.Timeout) {
		r.Running = true
		return nil
	}
	r.Status = p.cmd.ProcessState.ExitCode()
	return nil
}

// ended waits up to timeout for done, and reports whether done is closed.
func ended(done <-chan struct{}, timeout time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-time.After(timeout):
		return false
	}
}

// File is a file to write.
type File struct {
	Path string
	Data []byte
	Mode os.FileMode
}

// WriteFile writes a file.
func (a *agent) WriteFile(f File, _ *struct{}) error { return os.WriteFile(f.Path, f.Data, f.Mode) }

// ReadFile reads a file.
func (a *agent) ReadFile(path string, data *[]byte) (err error) {
	*data, err = os.ReadFile(path)
	return err
}

// Device is a netdevice to watch.
type Device struct {
	NS, Name string
	Carrier  bool // carrier to wait for
}

// WaitCarrier waits until the netdevice exists and its carrier is as wanted, and returns how long
// that took.
func (a *agent) WaitCarrier(d Device, took *time.Duration) error {
	started := time.Now()
	h, err := netns.Handle(d.NS)
	if err != nil {
		return err
	}
	defer h.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		link, err := h.LinkByName(d.Name)
		var missing netlink.LinkNotFoundError
		if err != nil && !errors.As(err, &missing) {
			return fmt.Errorf("looking for %s: %w", d.Name, err)
		}
		if err == nil && (link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0) == d.Carrier {
			*took = time.Since(started)
			return nil
		}
		if <-tick.C; time.Since(started) > patience {
			return fmt.Errorf("carrier of %s in %q is not %t after %v (there: %t)", d.Name, d.NS, d.Carrier, patience,
				err == nil)
		}
	}
}

// SetClock changes the wall clock by the duration by.
func (a *agent) SetClock(by time.Duration, _ *struct{}) error {
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	return nil
}
