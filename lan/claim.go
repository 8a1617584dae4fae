package lan

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// Claim makes this process the only one that shares out network card nic in
// network namespace ns, until release is called or the process ends, however
// it ends. The error wraps ErrInUse if there is another one: each would take
// the other's macvtaps for ones that a killed process left.
func Claim(nic, ns string) (release func() error, err error) {
	c, err := findCard(nic, ns)
	if err != nil {
		return nil, err
	}
	c.handle.Close()
	// Abstract socket addresses belong to a network namespace, as cards do, and
	// to a process. Nobody connects to this one.
	var ln net.Listener
	err = netns.Do(ns, func() (err error) {
		ln, err = net.Listen("unix", fmt.Sprintf("@splitnic/lan/%d", c.index))
		return err
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("network card %s: %w: another I/O unit shares it out (end that one, or choose another card)", nic, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("claiming network card %s: %w", nic, err)
	}
	return ln.Close, nil
}
