package iounit

import (
	"errors"
	"fmt"
)

var (
	// errDenied is wrapped by errors about something that a host may not have.
	errDenied = errors.New("not allowed")
	// errPolicy is wrapped by the reason for the end of a session that a new policy does not
	// permit.
	errPolicy = errors.New("the policy has changed")
)

// The reasons for which a host gets no session, or loses it.
var (
	errFull         = errors.New("the maximum number of hosts is connected (--max-hosts)")
	errSessions     = errors.New("this key has its maximum number of sessions (max-sessions in the policy)")
	errReplaced     = errors.New("a newer session of this host's name and key took its place; two hosts with one key need a --host-name each")
	errDraining     = errors.New("the I/O unit refuses hosts during maintenance; `splitnic iounit undrain` there ends this")
	errDisconnected = errors.New("the host was disconnected by hand; it may come back")
	errShuttingDown = errors.New("the I/O unit is shutting down")
	errEnding       = errors.New("this host's last session is still being ended; if that lasts, its interface on the network card hangs")
)

// errUnbound is the reason for refusing a session without binding if the policy requires it.
var errUnbound = fmt.Errorf("%w: a session without the feature bind, which `require-bind` in the policy asks for; update splitnic on the host", errDenied)
