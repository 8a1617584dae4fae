package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
)

// whichNames describes the names that socketAmong accepts.
const whichNames = `NAME
is the name of a host's netdevice, such as sn0, the port of an I/O unit, the name of a socket
there, such as iounit-7580, or a path.`

const whichHost = `NAME is the original name of the netdevice, or the path of the host's status socket. It can
be omitted if there is only one host.`

// socketsOr returns the sockets that were named for a command or, if none was named, those of all
// hosts, agents and I/O units on this machine. If some are not found, it returns the others and
// an error.
func socketsOr(named []string, command string, list func() ([]string, error)) ([]string, error) {
	if len(named) > 0 {
		var paths []string
		var errs []error
		for _, name := range named {
			path, err := socketAmong(list, name)
			if err == nil {
				paths = append(paths, path)
			}
			errs = append(errs, err)
		}
		return paths, errors.Join(errs...)
	}
	sockets, err := list()
	if err == nil && len(sockets) == 0 {
		err = exit.With(exit.Missing,
			fmt.Errorf("no host, agent or I/O unit runs on this machine, or it has its socket elsewhere: splitnic %s SOCKET",
				command))
	}
	return sockets, err
}

// socketAmong finds a socket in /run/splitnic by a name that the user gave: the socket of a host
// by the name of its netdevice, or that of an I/O unit by its port. A path may be outside of this
// directory.
func socketAmong(list func() ([]string, error), name string) (string, error) {
	host, unit := socketPath("host", name), socketPath("iounit", name)
	agent := statussock.Path(cards.AgentSocket)
	if filepath.Dir(host) != statussock.Dir {
		return host, nil
	}
	sockets, err := list()
	switch {
	case err != nil:
		return "", err
	case slices.Contains(sockets, host):
		return host, nil
	case slices.Contains(sockets, unit):
		return unit, nil
	case name == cards.AgentSocket && slices.Contains(sockets, agent):
		return agent, nil
	}
	there := orNone(strings.Join(namesOf(sockets), ", "))
	return "", exit.With(exit.Missing, fmt.Errorf("%w %q on this machine; there are: %s",
		statussock.ErrNobody, name, there))
}

// namesOf returns the names that users have for the processes and cards with these sockets. A host
// is called by the name of its netdevice, and a card by its own name.
func namesOf(sockets []string) (names []string) {
	for _, path := range sockets {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		names = append(names, strings.TrimPrefix(name, "host-"))
	}
	return names
}

// socketPath returns the path of the socket that a user has named. name is the path, or the name
// of the socket in /run/splitnic, such as iounit-7580, or the part of it after the role: the name
// of a host's netdevice, or the port of an I/O unit.
func socketPath(role, name string) string {
	switch {
	case strings.ContainsRune(name, '/'), strings.HasSuffix(name, ".sock"):
		return name
	case strings.HasPrefix(name, "iounit-"), strings.HasPrefix(name, "host-"), name == cards.AgentSocket:
		return statussock.Path(name)
	}
	return statussock.Path(role + "-" + name)
}

// tellHost sends a command, which may have an argument, to a host on this machine. It returns the
// answer.
func tellHost(ctx context.Context, args []string, command string, argument any) (json.RawMessage, error) {
	path, err := daemonSocket("host", args, statussock.List)
	if err != nil {
		return nil, err
	}
	raw, err := statussock.DoWith(ctx, path, command, argument)
	switch {
	case errors.Is(err, statussock.ErrUnknown):
		err = exit.Usagef("%w; it is for hosts", err)
	case errors.Is(err, statussock.ErrNobody) && !errors.Is(err, statussock.ErrLeft):
		err = fmt.Errorf("%w; name the host's netdevice as its --name does, or the path of its --status-socket "+
			"(`splitnic status` lists who is there)", err)
	}
	return raw, err
}

// daemonSocket returns the status socket of the host or I/O unit in args, or of the only one on
// this machine.
func daemonSocket(role string, args []string, list func() ([]string, error)) (string, error) {
	prefix := role + "-"
	if len(args) == 1 {
		return socketPath(role, args[0]), nil
	}
	all, err := list()
	if err != nil {
		return "", err
	}
	var sockets, names []string
	for _, path := range all {
		if name, ok := strings.CutPrefix(filepath.Base(path), prefix); ok {
			sockets = append(sockets, path)
			names = append(names, strings.TrimSuffix(name, filepath.Ext(name)))
		}
	}
	what := map[string]string{"host": "host", "iounit": "I/O unit"}[role]
	switch len(sockets) {
	case 0:
		return "", exit.With(exit.Missing,
			fmt.Errorf("no %s runs on this machine, or it has its socket elsewhere: give the path of its --status-socket", what))
	case 1:
		return sockets[0], nil
	default:
		return "", exit.Usagef("which %s? There are: %s", what, strings.Join(names, ", "))
	}
}
