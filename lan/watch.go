package lan

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// watch implements Interface.Watch. own is the index of the port's own
// netdevice, 0 if it has none or its queues tell that it is gone. adapt, if not
// nil, is called before fn to make the port follow the card.
func (c *card) watch(ctx context.Context, own int, adapt func(LinkState) error, fn func(LinkState)) error {
	var s *nl.NetlinkSocket
	err := netns.Do(c.ns, func() error {
		var err error
		s, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
		return err
	})
	if err != nil {
		return fmt.Errorf("watching %s: subscribing to link changes: %w", c.nic, err)
	}
	stop := context.AfterFunc(ctx, s.Close)
	defer func() {
		if stop() {
			s.Close()
		}
	}()
	var last LinkState
	for first := true; ; first = false {
		// Subscribed first, read then: no change can be missed.
		now, err := c.State()
		if err == nil && own != 0 {
			err = c.exists(own)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && errors.Is(err, ErrGone) {
			last.Up = false
			fn(last)
			return err
		}
		if err != nil {
			return err
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
		if err := c.await(s, own); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watching %s: %w", c.nic, err)
		}
	}
}

// exists returns an error that wraps ErrGone if the port's own netdevice is not
// there any more: an administrator, or another process, has deleted it.
func (c *card) exists(own int) error {
	return c.do("looking for the netdevice", func() error {
		_, err := c.handle.LinkByIndex(own)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return ErrGone
		}
		return err
	})
}

// await returns when something about the card, or the port's own netdevice, may
// have changed.
func (c *card) await(s *nl.NetlinkSocket, own int) error {
	for {
		msgs, from, err := s.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			return nil // messages were lost: one of them may have been ours
		}
		if err != nil {
			return err
		}
		if from.Pid == nl.PidKernel && c.concerned(msgs, own) {
			return nil
		}
	}
}

// concerned reports whether one of msgs is about the card or the port's own
// netdevice.
func (c *card) concerned(msgs []syscall.NetlinkMessage, own int) bool {
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK {
			continue
		}
		if len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		if i := int(nl.DeserializeIfInfomsg(m.Data).Index); i == c.index || i == own {
			return true
		}
	}
	return false
}

// followMTU gives the device with that index the card's MTU. The kernel lowers
// it with the card's by itself, but does not raise it.
func (c *card) followMTU(name string, index int, s LinkState) error {
	return c.do(fmt.Sprintf("setting MTU %d", s.MTU), func() error {
		err := c.handle.LinkSetMTU(device(name, index), s.MTU)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
			// The card changed again, or went: the next message tells.
			return nil
		}
		return err
	})
}
