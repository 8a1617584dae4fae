package lan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// subscribe adds a watcher. The caller has to be a user of s until unsubscribe.
func (s *shared) subscribe(own int) (*watcher, error) {
	w := &watcher{own: own, changed: make(chan struct{}, 1)}
	w.recheck.Store(own != 0)
	f := &s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.socket == nil {
		var socket *nl.NetlinkSocket
		err := netns.Do(s.ns, func() (err error) {
			socket, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("subscribing to link changes: %w", err)
		}
		// Subscribe first and read the state afterwards, so that no change is missed.
		f.state, f.err = s.read()
		f.socket, f.ended, f.watchers = socket, make(chan struct{}), make(map[*watcher]struct{})
		go s.follow(socket, f.ended)
	}
	f.watchers[w] = struct{}{}
	return w, nil
}

// unsubscribe removes a watcher. If it was the last one, unsubscribe waits for the end of the
// goroutine.
func (s *shared) unsubscribe(w *watcher) {
	f := &s.follower
	f.mu.Lock()
	delete(f.watchers, w)
	var ended chan struct{}
	if len(f.watchers) == 0 {
		f.socket.Close()
		f.socket, ended = nil, f.ended
	}
	f.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// follow is the goroutine of a follower.
func (s *shared) follow(socket *nl.NetlinkSocket, ended chan struct{}) {
	defer close(ended)
	for {
		msgs, from, err := socket.Receive()
		lost := errors.Is(err, unix.ENOBUFS) // messages were lost, and may have concerned the card
		card := lost
		var gone map[int]bool
		switch {
		case lost:
			s.drain(socket)
		case err != nil:
			s.update(socket, LinkState{}, err)
			return
		case from.Pid == nl.PidKernel:
			card, gone = s.concerned(msgs)
		}
		if card {
			now, err := s.read()
			if !s.update(socket, now, err) {
				return
			}
		}
		if lost || len(gone) > 0 {
			s.recheck(socket, lost, gone)
		}
	}
}

// drain removes all messages from a socket that has lost some. The kernel reports the loss
// only once, and drops further messages until the socket is empty. A state that is read
// before that may be outdated, and no message would tell.
func (s *shared) drain(socket *nl.NetlinkSocket) {
	f := &s.follower
	f.mu.Lock() // the socket stays open
	defer f.mu.Unlock()
	for b := make([]byte, 1); f.socket == socket; {
		_, _, err := unix.Recvfrom(socket.GetFd(), b, unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// concerned reports whether one of msgs is about the card, and returns the indices of the
// netdevices that may have been removed.
func (s *shared) concerned(msgs []syscall.NetlinkMessage) (card bool, gone map[int]bool) {
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		switch i := int(nl.DeserializeIfInfomsg(m.Data).Index); {
		case i == s.index:
			card = true
		case m.Header.Type == unix.RTM_DELLINK:
			if gone == nil {
				gone = make(map[int]bool)
			}
			gone[i] = true
		}
	}
	return card, gone
}

// update sets the state of the card and notifies the watchers of a change. It reports whether
// socket is still in use.
func (s *shared) update(socket *nl.NetlinkSocket, now LinkState, err error) bool {
	f := &s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.socket != socket {
		return false
	}
	if f.looked != nil {
		f.looked()
	}
	if now == f.state && err == nil && f.err == nil {
		return true
	}
	f.state, f.err = now, err
	for w := range f.watchers {
		w.tell()
	}
	return true
}

// recheck makes watchers check whether their netdevice still exists: all of them, or those
// whose netdevice is in gone.
func (s *shared) recheck(socket *nl.NetlinkSocket, all bool, gone map[int]bool) {
	f := &s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.socket != socket {
		return
	}
	for w := range f.watchers {
		if w.own != 0 && (all || gone[w.own]) {
			w.recheck.Store(true)
			w.tell()
		}
	}
}

// latest returns the state of the card that was read last.
func (s *shared) latest() (LinkState, error) {
	f := &s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.err
}

// watch implements Interface.Watch. own is the index of the port's own netdevice. It is 0 if
// there is none, or if the port's queues report the removal of the netdevice. adapt, if not
// nil, is called before fn and makes the port follow the card.
func (c *card) watch(ctx context.Context, own int, adapt func(LinkState) error, fn func(LinkState)) error {
	if !c.hold() {
		return fmt.Errorf("watching %s: %w", c.nic, net.ErrClosed)
	}
	defer c.release()
	w, err := c.subscribe(own)
	if err != nil {
		return fmt.Errorf("watching %s: %w", c.nic, err)
	}
	defer c.unsubscribe(w)
	var last LinkState
	for first := true; ; first = false {
		now, err := c.latest()
		if err == nil && w.recheck.Swap(false) {
			err = c.exists(own)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && errors.Is(err, ErrGone) {
			last.Up = false
			fn(last)
			return fmt.Errorf("watching %s: %w", c.nic, err)
		}
		if err != nil {
			return fmt.Errorf("watching %s: %w", c.nic, err)
		}
		if first || now != last {
			if adapt != nil {
				if err := adapt(now); err != nil {
					return err
				}
			}
			last = now
			fn(now)
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// exists returns an error that wraps ErrGone if the port's own netdevice does not exist any
// more, because an administrator or another process has deleted it.
func (c *card) exists(own int) error {
	return c.do("looking for the netdevice", func() error {
		_, err := c.looks.LinkByIndex(own)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return ErrGone
		}
		return err
	})
}

// followMTU sets the MTU of the device with this index to the card's. The kernel itself lowers
// the device's MTU with the card's, but does not raise it.
func (c *card) followMTU(name string, index int, s LinkState) error {
	return c.do(fmt.Sprintf("setting MTU %d", s.MTU), func() error {
		err := c.handle.LinkSetMTU(device(name, index), s.MTU)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
			// The card has changed again or was removed: another message will follow.
			return nil
		}
		return err
	})
}
