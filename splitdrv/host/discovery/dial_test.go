package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// reached is a connection to the machine at 10.0.0.1.
type reached struct{ net.Conn }

func (reached) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7580} }

// network is a network that resolves names as long as err is nil.
type network struct {
	err    error
	silent bool     // the DNS server does not answer
	asked  []string // dialled addresses
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.asked = append(n.asked, addr)
	switch {
	case addr == "10.0.0.1:7580", n.err == nil && !n.silent:
		return reached{}, ctx.Err()
	case n.silent:
		<-ctx.Done()
		return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true}
	}
	return nil, n.err
}

// TestDial expects that an I/O unit is dialled at its last known address if DNS does not answer,
// also in the next process, and that it is not if DNS says that there is no such name, or the I/O
// unit is down.
func TestDial(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dns")
	const unit = "u1.example:7580"
	mute := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	gone := &net.DNSError{Err: "no such host", IsNotFound: true}
	dial := func(t *testing.T, d *Directory, n *network, addr string) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := d.Dial(ctx, "tcp", addr, n.dial)
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		s := script{keep: dir}
		s.says(time.Minute, "u1.example:1:1 u2.example:1:1")
		d, end := s.begin(t, keptName)
		if err := dial(t, d, &network{err: mute}, unit); !errors.Is(err, mute) {
			t.Errorf("one that was never reached: %v", err)
		}
		if err := dial(t, d, &network{}, unit); err != nil {
			t.Error(err)
		}
		pass(2 * time.Minute)
		end()

		s.fails(errTimeout)
		d = s.run(t, keptName)
		for _, c := range []struct {
			name, addr string
			n          network
			want       error
			asked      []string
		}{
			{"a failure", unit, network{err: &net.OpError{Op: "dial", Err: mute}}, nil, []string{unit, "10.0.0.1:7580"}},
			{"silence", unit, network{silent: true}, nil, []string{unit, "10.0.0.1:7580"}},
			{"no such name", unit, network{err: gone}, gone, []string{unit}},
			{"no such machine", unit, network{err: errTimeout}, errTimeout, []string{unit}},
			{"another", "u2.example:7580", network{err: mute}, mute, []string{"u2.example:7580"}},
			{"an address", "10.0.0.2:7580", network{err: mute}, mute, []string{"10.0.0.2:7580"}},
		} {
			began := time.Now()
			err := dial(t, d, &c.n, c.addr)
			if took := time.Since(began); !errors.Is(err, c.want) || !slices.Equal(c.n.asked, c.asked) || took > 5*time.Second {
				t.Errorf("%s: %v, dialled %q, in %v", c.name, err, c.n.asked, took)
			}
		}
	})
}

// TestAddressKept expects an address to be kept for the next process if it was reached after the
// last answer.
func TestAddressKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := script{keep: dir}
		s.says(time.Hour, "u1.example:1:1")
		d, end := s.begin(t, keptName)
		if _, err := d.Dial(t.Context(), "tcp", "u1.example:7580", new(network).dial); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end()
		k, err := shelf(dir).get("_splitnic._tcp.x", time.Now())
		if at := k.Addresses["u1.example"]; err != nil || at != netip.AddrFrom4([4]byte{10, 0, 0, 1}) {
			t.Errorf("%v, %v", at, err)
		}
	})
}

// TestDialForgets has DNS name another I/O unit each time. It expects the addresses of I/O units
// that DNS no longer names to be forgotten, and those of configured ones to be kept.
func TestDialForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script{}
		s.says(time.Second, "u0.example:1:1")
		d := s.run(t, keptName, "first.example")
		for i := range 100 {
			s.says(time.Second, fmt.Sprintf("u%d.example:1:1", i))
			pass(10 * time.Second)
			for _, addr := range []string{fmt.Sprintf("u%d.example:7580", i), "first.example:7580"} {
				if _, err := d.Dial(t.Context(), "tcp", addr, new(network).dial); err != nil {
					t.Fatal(err)
				}
			}
		}
		d.mu.Lock()
		n := len(d.addresses)
		d.mu.Unlock()
		if n > 3 { // two from answers, and one from the configuration
			t.Errorf("%d addresses are remembered", n)
		}
		if _, ok := d.address("first.example"); !ok {
			t.Error("one that is configured is not remembered")
		}
	})
}
