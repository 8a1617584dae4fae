package endpoints

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// virtualMachine is a guest in which the program guest executes the test's commands.
type virtualMachine struct {
	*bootedMachine
	t    *testing.T
	kill func() // kills the emulator
}

// newGuest makes the files of a guest.
func newGuest(t *testing.T) *machineFiles {
	t.Helper()
	testenv.NeedTools(t, "qemu-system-x86_64", "modprobe", "ip")
	f, err := prepareMachine("../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		if t.Failed() {
			said, _ := os.ReadFile(f.Console)
			t.Logf("guest:\n%s", said)
		}
	})
	return f
}

// up waits until a guest that was started has come up.
func up(t *testing.T, f *machineFiles) *virtualMachine {
	t.Helper()
	m, err := f.Up()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &virtualMachine{bootedMachine: m, t: t}
}

// boot starts a guest with these devices; see machineFiles.Start.
func boot(t *testing.T, ns, file string, devices ...string) *virtualMachine {
	t.Helper()
	f := newGuest(t)
	e, err := f.Start(ns, file, devices...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if said := e.Kill(); t.Failed() {
			t.Logf("QEMU: %s", said)
		}
	})
	m := up(t, f)
	m.kill = func() { e.Kill() }
	return m
}

// tell makes the guest execute a command.
func (m *virtualMachine) tell(command string) {
	m.t.Helper()
	if err := m.Tell(command); err != nil {
		m.t.Fatal(err)
	}
}

// exchange sends n random bytes from a namespace to the guest by TCP, and checks the bytes that
// come back, and what the guest reports about those that it received.
func exchange(ns, addr string, seed byte, n int64) error {
	var c net.Conn
	err := netns.Do(ns, func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(addr, "7000"), testenv.Patience)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		return err
	}
	sent, got := sha256.New(), sha256.New()
	errs := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(c, sent), io.LimitReader(rand.NewChaCha8([32]byte{seed}), n))
		errs <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	m, err := io.CopyN(got, c, n)
	if err == nil {
		err = <-errs
	}
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", m, n, err)
	}
	of, err := io.ReadAll(c)
	if want := sent.Sum(nil); err != nil || !bytes.Equal(of, want) || !bytes.Equal(got.Sum(nil), want) {
		return fmt.Errorf("%d bytes arrive changed: %w", n, err)
	}
	return nil
}
