//go:build cgo

package hostiletest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/verbs"
)

// TestRDMAReads tries RDMA reads from lent memory and atomic operations on it. The device must refuse
// them, because a peer has only the right to remote writes. Package fabric does not have these
// operations, so a small C program posts them.
func TestRDMAReads(t *testing.T) {
	names := testenv.NeedRDMA(t, 2)
	testenv.NeedTools(t, "cc")
	program := filepath.Join(t.TempDir(), "reader")
	if out, err := exec.CommandContext(t.Context(), "cc", "-o", program, "testdata/reader.c",
		"-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	open := func(name string) fabric.Device {
		c, err := verbs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	victim, attacker := open(names[0]), open(names[1])
	for _, operation := range []string{"read", "add", "swap"} {
		t.Run(operation, func(t *testing.T) {
			cfg := messaging.Config{Device: victim, Timing: fabric.Timing{Timeout: 18}, PeerTimeout: time.Minute}
			conn, err := messaging.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			// The peer has the control channel, and the program has the data channel.
			p := NewPeer(t, PeerConfig{Device: attacker, Mode: protocol.ModeImm, Channels: 1,
				Timing: cfg.Timing})
			own := p.Addresses()[0]
			reader := exec.CommandContext(t.Context(), program, names[1], hex.EncodeToString(own.GID[:]))
			in, out := pipes(t, reader)
			data := own
			if _, err := fmt.Fscan(out, &data.QPN, &data.PSN); err != nil {
				t.Fatal(err)
			}
			if err := conn.Connect([]fabric.Address{own, data},
				protocol.ControlReceives(protocol.ModeImm, 1, cfg.Lends())); err != nil {
				t.Fatal(err)
			}
			p.Connect(conn.Addresses())
			port, _ := porttest.New(t, 1<<16)
			if err := conn.Start([]messaging.Port{porttest.Batched{Single: port}}); err != nil {
				t.Fatal(err)
			}
			p.Started()
			to := conn.Addresses()[1]
			if _, err := fmt.Fprintln(in, operation, to.QPN, to.PSN, hex.EncodeToString(to.GID[:]), p.Pools[0].Addr,
				p.Pools[0].RKey); err != nil {
				t.Fatal(err)
			}
			var status fabric.Status
			var changed int
			if _, err := fmt.Fscan(out, &status, &changed); err != nil {
				t.Fatal(err)
			}
			if status != fabric.StatusRemAccessErr && status != fabric.StatusRemInvReqErr || changed != 0 {
				t.Errorf("the device says %q, and %d bytes came", status, changed)
			}
			if err := reader.Wait(); err != nil {
				t.Error(err)
			}
			select {
			case <-conn.Done():
			case <-time.After(testenv.Patience):
				t.Fatal("the session goes on")
			}
			var failed *fabric.WCError
			if err := conn.Err(); !errors.As(err, &failed) {
				t.Errorf("the session ended with %v", err)
			}
		})
	}
}

// pipes starts a program and returns its standard input and output.
func pipes(t *testing.T, cmd *exec.Cmd) (io.Writer, io.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}
