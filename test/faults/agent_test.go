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

// patience bounds every wait for something that has to come about.
const patience = 60 * time.Second

// agent is what runs on each machine. Its exported methods are called by net/rpc,
// several at a time.
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

// Hello is what an agent says first.
type Hello struct {
	Mode string // of the harness: kvm or tcg
}

// Hello answers as soon as the machine is up.
func (a *agent) Hello(_ struct{}, h *Hello) error {
	h.Mode = os.Getenv("SPLITNIC_SOFTROCE_MODE")
	return nil
}

// Command is a program to run.
type Command struct {
	Args  []string
	NS    string // network namespace; empty: the first one
	Input string
	Log   string // of Start: file for standard output and error
}

func (c *Command) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdin = bytes.NewReader([]byte(c.Input))
	return cmd
}

// Result is how a program ended.
type Result struct {
	Output  string
	Status  int  // -1 after a signal
	Running bool // of Wait: it has not ended
}

// Run runs a program to its end. It is no error that the program fails.
func (a *agent) Run(c Command, r *Result) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := c.command(ctx)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// It may leave something running that holds the pipe open.
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

// Signal is a signal for a program in the background.
type Signal struct {
	ID     int
	Signal unix.Signal
}

// Signal sends one. It is no error that the program has ended.
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

// Wait is for how long to wait for the end of a program in the background.
type Wait struct {
	ID      int
	Timeout time.Duration
}

// Wait waits.
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

// ended waits for done, for so long at most, and reports whether it is closed.
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
	Carrier  bool // to wait for
}

// WaitCarrier waits until the netdevice is there and has, or has not, carrier,
// and returns how long that took.
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

// SetClock moves the clock of the wall by so much.
func (a *agent) SetClock(by time.Duration, _ *struct{}) error {
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	return nil
}
