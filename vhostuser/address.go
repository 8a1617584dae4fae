package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Address is the address at which a front end and the back end connect.
type Address struct {
	Path   string // of the unix socket
	Client bool   // the front end listens
}

// Prefix is the beginning of the text of an address.
const Prefix = "vhost-user:"

// MaxPath is the largest length of the path of a socket in bytes.
const MaxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// ParseAddress parses vhost-user:PATH, or vhost-user:PATH,client.
func ParseAddress(s string) (Address, error) {
	path, ok := strings.CutPrefix(s, Prefix)
	if !ok {
		return Address{}, fmt.Errorf("%q: must be tap, %sPATH, or %sPATH,client", s, Prefix, Prefix)
	}
	path, client := strings.CutSuffix(path, ",client")
	switch {
	case strings.Contains(path, ","):
		return Address{}, fmt.Errorf("%q: behind the comma must be client, or nothing", s)
	case !filepath.IsAbs(path):
		return Address{}, fmt.Errorf("%q: the path of the socket must begin with /", s)
	case len(path) > MaxPath:
		return Address{}, fmt.Errorf("%q: the path of a socket has at most %d bytes, and this one %d", s, MaxPath, len(path))
	}
	return Address{Path: path, Client: client}, nil
}

// String returns the text for ParseAddress, or "none" for the zero address.
func (a Address) String() string {
	if a.Path == "" {
		return "none"
	}
	if a.Client {
		return Prefix + a.Path + ",client"
	}
	return Prefix + a.Path
}

// open returns a function that waits for the next connection, and one that closes the socket.
func (a Address) open() (next func(context.Context) (*net.UnixConn, error), end func(), err error) {
	if a.Client {
		return a.dial, func() {}, nil
	}
	l, err := a.listen()
	if err != nil {
		return nil, nil, fmt.Errorf("vhost-user: %w", err)
	}
	return func(context.Context) (*net.UnixConn, error) { return l.AcceptUnix() }, func() { l.Close() }, nil
}

func (a Address) dial(ctx context.Context) (*net.UnixConn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", a.Path)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// listen makes the socket. It replaces the socket of a process that no longer exists.
func (a Address) listen() (*net.UnixListener, error) {
	dir := filepath.Dir(a.Path)
	if st, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%w (the directory of the socket has to be there: mkdir -p %s)", err, dir)
	} else if !st.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	switch st, err := os.Lstat(a.Path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there already, and is not a socket", a.Path)
	default:
		c, err := net.Dial("unix", a.Path)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: %w: a process listens there", a.Path, unix.EADDRINUSE)
		}
		if !errors.Is(err, unix.ECONNREFUSED) { // another process may use it
			return nil, fmt.Errorf("%s is there already, and may be in use: %w", a.Path, err)
		}
		if err := os.Remove(a.Path); err != nil {
			return nil, err
		}
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: a.Path, Net: "unix"})
}
