package verbs

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipeFD returns a pollFD on a pipe, and a function that writes a byte, which is an event.
func pipeFD(t *testing.T) (p *pollFD, event func()) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	p = newPollFD(fds[0], func() syscall.Errno {
		n, err := unix.Read(fds[0], b[:])
		if n == 1 {
			return 0
		}
		var no syscall.Errno
		if !errors.As(err, &no) {
			return syscall.EPIPE // end of file
		}
		return no
	})
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
		for _, fd := range fds {
			if err := unix.Close(fd); err != nil {
				t.Error(err) // another part of the code has closed the descriptor
			}
		}
	})
	one := []byte{1}
	return p, func() {
		if _, err := unix.Write(fds[1], one); err != nil {
			t.Error(err)
		}
	}
}

func waiting(p *pollFD, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.wait(ctx) }()
	return done
}

func TestPollFD(t *testing.T) {
	p, event := pipeFD(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range 3 {
		done := waiting(p, ctx)
		event()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}

	done := waiting(p, ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	event()
	if err := p.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled before: %v", err)
	}
	// A wait with a context that is not done has to get the event.
	if err := p.wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := p.wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("past the deadline: %v", err)
	}
}

// TestPollFDStaleCancellation expects a late cancellation not to end the wait of another context.
func TestPollFDStaleCancellation(t *testing.T) {
	p, event := pipeFD(t)
	old, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, ctx := range []context.Context{old, context.Background()} {
		event()
		if err := p.wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	p.interrupt(p.gen - 1) // like a cancellation of old that began before the last wait
	event()
	if err := p.wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if p.ready(0); p.errno != syscall.EAGAIN {
		t.Error("the wait ended without its event")
	}
}

func TestPollFDClose(t *testing.T) {
	for range 100 {
		p, _ := pipeFD(t)
		a, b := waiting(p, context.Background()), waiting(p, context.Background())
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		if err := p.close(); err != nil {
			t.Fatal(err)
		}
		for _, done := range []<-chan error{a, b} {
			if err := <-done; !errors.Is(err, net.ErrClosed) {
				t.Fatalf("closed: %v", err)
			}
		}
		if err := p.wait(context.Background()); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("closed before: %v", err)
		}
	}
}

// TestPollFDTurns expects a second waiter to end at its deadline while the first one waits.
func TestPollFDTurns(t *testing.T) {
	p, event := pipeFD(t)
	first := waiting(p, context.Background())
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	second := waiting(p, short)
	if err := <-second; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("second waiter: %v", err)
	}
	event()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}
