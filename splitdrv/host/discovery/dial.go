package discovery

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
)

// DialFunc has the signature of net.Dialer.DialContext.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial dials the I/O unit at addr. If DNS does not answer, Dial uses the address at which
// this process, or a previous one that has kept it, has reached the I/O unit before. It does
// not do that if DNS answers that the name does not exist.
func (d *Directory) Dial(ctx context.Context, network, addr string, dial DialFunc) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return dial(ctx, network, addr)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return dial(ctx, network, addr)
	}
	known, ok := d.address(host)
	named := ctx
	if deadline, bounded := ctx.Deadline(); ok && bounded {
		// Leave time for the known address if the DNS server is silent.
		var cancel context.CancelFunc
		named, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	c, err := dial(named, network, addr)
	var unresolved *net.DNSError
	switch {
	case err == nil:
		d.note(host, c.RemoteAddr())
	case ok && errors.As(err, &unresolved) && !unresolved.IsNotFound && ctx.Err() == nil:
		if c, second := dial(ctx, network, net.JoinHostPort(known.String(), port)); second == nil {
			return c, nil
		}
	}
	return c, err
}

// address returns the address at which a host was reached, if any.
func (d *Directory) address(host string) (a netip.Addr, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok = d.addresses[host]
	return a, ok
}

// note records the address at which a host was reached, also for the next process.
func (d *Directory) note(host string, at net.Addr) {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := tcp.AddrPort().Addr().Unmap(); d.addresses[host] != now {
		d.addresses[host] = now
		for _, s := range d.sources {
			wake.Up(s.reached)
		}
	}
}
