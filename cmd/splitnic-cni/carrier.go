package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// askEvery is the interval of asking the agent whether there can still be carrier.
const askEvery = 250 * time.Millisecond

// carrier waits until a netdevice has carrier, and returns its attributes. At that time the I/O
// unit has determined its MAC address and MTU. carrier fails when vain reports that there will
// be no carrier.
func carrier(ctx context.Context, ns, ifname string, vain func() bool) (*netlink.LinkAttrs, error) {
	began := time.Now()
	changes, done := make(chan netlink.LinkUpdate), make(chan struct{})
	defer func() {
		close(done)
		go func() { // the sender may be sending
			for range changes {
			}
		}()
	}()
	failed := make(chan error, 1)
	err := netns.Do(ns, func() error {
		return netlink.LinkSubscribeWithOptions(changes, done, netlink.LinkSubscribeOptions{
			ListExisting: true,
			ErrorCallback: func(err error) {
				select {
				case failed <- err:
				default:
				}
			},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", ifname, err)
	}
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case <-ask.C:
			if vain() {
				return nil, errors.New("there will be no carrier")
			}
		case u, more := <-changes:
			if !more {
				return nil, fmt.Errorf("watch %s: %w", ifname, <-failed)
			}
			attrs := u.Attrs()
			if attrs.Name == ifname && attrs.RawFlags&unix.IFF_LOWER_UP != 0 && u.Header.Type == unix.RTM_NEWLINK {
				return attrs, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no carrier within %v", time.Since(began).Round(100*time.Millisecond))
		}
	}
}
