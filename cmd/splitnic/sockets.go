package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
)

// lister finds the sockets on this machine.
type lister func() ([]string, error)

// role says which processes a command is for, by the beginning of their sockets' names.
type role string

const (
	hostRole  role = "host-" // also an agent's cards
	unitRole  role = "iounit-"
	frameRole role = "host-,iounit-" // those with frames
	anyRole   role = ""
)

func (r role) has(path string) bool {
	name := fileName(path)
	return r == anyRole || slices.ContainsFunc(strings.Split(string(r), ","),
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func (r role) String() string {
	return map[role]string{
		hostRole: "host", unitRole: "I/O unit", frameRole: "host or I/O unit", anyRole: "host, agent or I/O unit",
	}[r]
}

// article returns the article of the role, with a space.
func (r role) article() string {
	if r == unitRole {
		return "an "
	}
	return "a "
}

// roleOf returns the role of the process or card with a socket, with its article.
func roleOf(path string) string {
	switch {
	case hostRole.has(path):
		return "a host"
	case unitRole.has(path):
		return "an I/O unit"
	}
	return "an agent"
}

// whichNames describes the names that socketOf accepts.
const whichNames = `NAME
is that of a card, such as sn0, or of its host or netdevice if no other card has this name, the name
of an agent, the port or name of an I/O unit, the name of a socket there, such as iounit-7580, or a
path.`

const whichHost = `NAME is the name of a card, or of its host or netdevice if no other card has this name, or the
path of the status socket. It can be omitted if there is only one card.`

// process is a process, or a card of an agent, with a socket on this machine.
type process struct {
	path string
	also []string     // names in its status, beside that of the socket
	lost []cards.Info // failed cards of an agent, which have no sockets
	gone bool         // nobody serves the socket
}

// fileName returns the name of a socket, such as host-sn0.
func fileName(path string) string { return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) }

// ownName returns the name that users have for the process or card with a socket. That of a card
// is its own, and that of an I/O unit has its port.
func ownName(path string) string { return strings.TrimPrefix(fileName(path), string(hostRole)) }

// shownName returns what errors call the process with a socket: its own name, or the path of a socket
// that only its path can name.
func shownName(path string) string {
	if filepath.Dir(path) != statussock.Dir {
		return path
	}
	return ownName(path)
}

// isCalled reports whether the socket itself is called so, for which its process need not answer.
func isCalled(path, name string) bool {
	return name == fileName(path) || name == ownName(path) || string(unitRole)+name == fileName(path)
}

// ask returns the processes with these sockets and what they are called in their status.
func ask(ctx context.Context, sockets []string) []process {
	all := make([]process, len(sockets))
	var asking sync.WaitGroup
	for i, path := range sockets {
		asking.Go(func() {
			all[i].path = path
			s, err := readStatus(ctx, path)
			all[i].gone = errors.Is(err, statussock.ErrNobody)
			switch {
			case err != nil:
			case s.Host != nil:
				all[i].also = []string{s.Host.Name, s.Host.Netdevice.Name}
			case s.Unit != nil:
				all[i].also = []string{s.Unit.Name}
			case s.Agent != nil:
				all[i].also = []string{s.Agent.Name}
				all[i].lost = slices.DeleteFunc(s.Agent.Cards, func(c cards.Info) bool { return c.Status.State != cards.Failed })
			}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(all, func(p process) bool { return p.gone })
}

// maxListed is the number of processes that an error lists.
const maxListed = 20

// listed lists processes with all names that socketOf accepts.
func listed(all []process) string {
	var words []string
	for i, p := range all {
		if i == maxListed {
			words = append(words, fmt.Sprintf("%d more", len(all)-i))
			break
		}
		name := ownName(p.path)
		also := slices.DeleteFunc(slices.Clone(p.also), func(s string) bool { return s == "" || s == name })
		if len(also) > 0 {
			name += " (" + strings.Join(also, ", ") + ")"
		}
		words = append(words, name)
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// socketOf finds the socket of a process with a role on this machine by a name that the user gave.
// A path may be outside of the directory of sockets.
func socketOf(ctx context.Context, of role, name string, list lister) (string, error) {
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".sock") {
		return name, nil
	}
	sockets, err := list()
	if err != nil {
		return "", err
	}
	own := slices.DeleteFunc(slices.Clone(sockets), func(path string) bool {
		return !of.has(path) || !isCalled(path, name)
	})
	switch len(own) {
	case 0:
	case 1:
		return own[0], nil
	default:
		for i, path := range own {
			own[i] = fileName(path)
		}
		return "", exit.Usagef("%q is ambiguous; name one of: %s", name, strings.Join(own, ", "))
	}
	var found, there, others []process
	var lost error
	for _, p := range ask(ctx, sockets) {
		for _, c := range p.lost {
			if name == c.Spec.Name || name == c.Spec.Netdevice {
				lost = exit.With(exit.Missing, fmt.Errorf("card %s: failed, and is tried again: %s", c.Spec.Name, c.Status.Error))
			}
		}
		if !of.has(p.path) {
			if isCalled(p.path, name) || slices.Contains(p.also, name) {
				others = append(others, p)
			}
			continue
		}
		there = append(there, p)
		if slices.Contains(p.also, name) {
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].path, nil
	case len(found) > 1:
		return "", exit.Usagef("%q is ambiguous; name one of: %s", name, listed(found))
	case lost != nil:
		return "", lost
	case len(others) > 0:
		return "", exit.Usagef("%q is %s, and this command is for %s; there are: %s", name, roleOf(others[0].path),
			of.article()+of.String(), listed(there))
	}
	return "", exit.With(exit.Missing, fmt.Errorf("%w %q on this machine; there are: %s",
		statussock.ErrNobody, name, listed(there)))
}

// oneSocket returns the status socket of the process that args name, or of the only one on this
// machine with that role.
func oneSocket(ctx context.Context, of role, args []string, list lister) (string, error) {
	if len(args) == 1 {
		return socketOf(ctx, of, args[0], list)
	}
	all, err := list()
	if err != nil {
		return "", err
	}
	sockets := slices.DeleteFunc(slices.Clone(all), func(path string) bool { return !of.has(path) })
	if len(sockets) == 1 {
		return sockets[0], nil
	}
	there := ask(ctx, all)
	fit := slices.DeleteFunc(slices.Clone(there), func(p process) bool { return !of.has(p.path) })
	switch {
	case len(fit) == 1: // sockets of killed processes beside it
		return fit[0].path, nil
	case len(fit) > 1:
		return "", exit.Usagef("which %s? There are: %s", of, listed(fit))
	}
	others := ""
	if len(there) > 0 {
		others = "; there are: " + listed(there)
	}
	return "", exit.With(exit.Missing, fmt.Errorf(
		"no %s runs on this machine, or it has its socket elsewhere: give the path of its --status-socket%s", of, others))
}

// socketsOr returns the sockets that were named for a command or, if none was named, those of all
// hosts, agents and I/O units on this machine. If some are not found, it returns the others and
// an error.
func socketsOr(ctx context.Context, named []string, list lister) (paths []string, _ error) {
	if len(named) == 0 {
		sockets, err := list()
		if err == nil && len(sockets) == 0 {
			_, err = oneSocket(ctx, anyRole, nil, list)
		}
		return sockets, err
	}
	var errs []error
	for _, name := range named {
		path, err := socketOf(ctx, anyRole, name, list)
		if err == nil && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
		errs = append(errs, err)
	}
	return paths, errors.Join(errs...)
}

// tell sends a command, which may have an argument, to the process that args name, or to the only
// one with the role. It returns the path of its socket, and the answer.
func tell[T any](
	ctx context.Context, of role, args []string, command string, argument any,
) (path string, answer T, err error) {
	if path, err = oneSocket(ctx, of, args, statussock.List); err != nil {
		return "", answer, err
	}
	raw, err := statussock.DoWith(ctx, path, command, argument)
	if err != nil {
		return path, answer, explainSocket(named(err, command, append(args, shownName(path))[0]))
	}
	if err = json.Unmarshal(raw, &answer); err != nil {
		err = fmt.Errorf("%s: %w", command, err)
	}
	return path, answer, err
}

// named returns an error of a command with the name of the process in place of the path of its socket,
// if the process has answered: then there is nothing wrong with the socket.
func named(err error, command, name string) error {
	var failed *statussock.FailedError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %s: %w", command, name, failed)
	}
	return err
}

// readStatus reads the status of the process or card with a socket.
func readStatus(ctx context.Context, path string) (render.Status, error) {
	raw, err := statussock.Read(ctx, path)
	if err != nil {
		return render.Status{}, err
	}
	return render.Parse(raw)
}

// explainSocket adds what to do to an error about a process's socket.
func explainSocket(err error) error {
	switch {
	case errors.Is(err, statussock.ErrUnknown):
		return exit.Usagef("%w; is it a host, or an I/O unit, that is meant?", err)
	case errors.Is(err, statussock.ErrNobody) && !errors.Is(err, statussock.ErrLeft):
		return fmt.Errorf("%w (`splitnic status` lists who is there)", err)
	}
	return err
}
