//go:build cgo

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

const iters = 50

// programs are the programs of rdma-core.
var programs = []struct {
	name string
	t    fabric.Transport
}{{"ibv_rc_pingpong", fabric.RC}, {"ibv_uc_pingpong", fabric.UC}}

// theirs prepares one of the programs of rdma-core on a device. These programs have to be given
// the index of the GID.
func theirs(
	ctx context.Context, t *testing.T, name, device string, tcpPort int, args ...string,
) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	dev, err := verbs.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	gid, _, err := dev.ChooseGID()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, name, append([]string{
		"-d", device, "-g", strconv.Itoa(gid.Index), "-n", strconv.Itoa(iters), "-p", strconv.Itoa(tcpPort),
	}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func setUp(t *testing.T, program string) (ctx context.Context, ours, theirs string) {
	t.Helper()
	names := testenv.NeedRDMA(t, 1)
	testenv.NeedTools(t, program)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	t.Cleanup(cancel)
	return ctx, names[0], names[len(names)-1]
}

func TestRDMAServerOfTheirClient(t *testing.T) {
	for _, p := range programs {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,events=%v", p.name, events), func(t *testing.T) {
				ctx, mine, other := setUp(t, p.name)
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				s := newTestSession(t, mine, p.t, events)
				cmd, out := theirs(ctx, t, p.name, other, ln.Addr().(*net.TCPAddr).Port, "127.0.0.1")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				err = s.accept(ctx, ln)
				if err == nil {
					_, err = s.play(ctx, false)
				}
				if werr := cmd.Wait(); err != nil || werr != nil {
					t.Fatalf("%v; %s: %v: %s", err, p.name, werr, out)
				}
			})
		}
	}
}

func TestRDMAClientOfTheirServer(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			ctx, mine, other := setUp(t, p.name)
			port := freePort(t)
			cmd, out := theirs(ctx, t, p.name, other, port)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			s := newTestSession(t, mine, p.t, false)
			var err error
			testenv.Eventually(t, func() bool {
				err = s.dial(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				return !errors.Is(err, syscall.ECONNREFUSED)
			}, "%s does not listen", p.name)
			if err == nil {
				_, err = s.play(ctx, true)
			}
			if werr := cmd.Wait(); err != nil || werr != nil {
				t.Fatalf("%v; %s: %v: %s", err, p.name, werr, out)
			}
		})
	}
}

// TestRDMABothEnds connects two sessions of this program.
func TestRDMABothEnds(t *testing.T) {
	for _, tr := range []fabric.Transport{fabric.RC, fabric.UC} {
		names := testenv.NeedRDMA(t, 1)
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
		defer cancel()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a, b := newTestSession(t, names[0], tr, true), newTestSession(t, names[len(names)-1], tr, true)
		server := make(chan error, 1)
		go func() {
			err := a.accept(ctx, ln)
			if err == nil {
				_, err = a.play(ctx, false)
			}
			server <- err
		}()
		err = b.dial(ctx, ln.Addr().String())
		if err == nil {
			_, err = b.play(ctx, true)
		}
		if serr := <-server; err != nil || serr != nil {
			t.Errorf("client %v, server %v", err, serr)
		}
	}
}

func newTestSession(t *testing.T, device string, tr fabric.Transport, events bool) *session {
	t.Helper()
	o, err := parseOptions([]string{"-d", device, "-n", strconv.Itoa(iters)})
	if err != nil {
		t.Fatal(err)
	}
	o.transport, o.events = tr, events
	s, err := newSession(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}
