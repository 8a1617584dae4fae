package messaging

import (
	"github.com/splitnic/splitnic/splitdrv/capture"

	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/rx"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/tx"
)

// This file has the parts of a Config that each part of a Conn needs.

func (c *Config) control() *control.Options {
	return &control.Options{
		TrafficClass: c.TrafficClass, ServiceLevel: c.ServiceLevel, Poll: c.Poll,
		KeepAlive: c.KeepAlive, PeerTimeout: c.PeerTimeout, AskLast: c.AskLast, OnHears: c.OnHears,
		OnRequest: c.OnRequest, Pace: c.Pace,
	}
}

func (c *Config) pools(windowBounds bool) pools.Options {
	return pools.Options{
		Channels: c.Queues, PeerPools: c.PeerPools, Idle: c.PoolIdle, Budget: c.Budget, Now: c.Now,
		Windows: c.Protection == ProtectWindow, OneTouch: c.Protection == ProtectOneTouch, WindowBounds: windowBounds,
		StrictOrdering: c.StrictOrdering, Invalidation: c.Invalidation, KeySend: c.KeySend, PeerOneTouch: c.OneTouch,
	}
}

// sender returns the settings of the sender of a data channel.
func (c *Config) sender(number int) *tx.Options {
	return &tx.Options{
		SendSlots: c.SendSlots, Batch: c.Batch, BatchBytes: c.BatchBytes, SignalEvery: c.SignalEvery,
		PackCopy: c.PackCopy, NoPack: c.NoPack, MaxSGE: c.Device.Limits().MaxSGE,
		OneTouch: c.Protection == ProtectOneTouch, ZeroCopy: c.ZeroCopy, Path: c.path(number), Poll: c.Poll,
	}
}

// receiver returns the settings of the receiver of a data channel.
func (c *Config) receiver(number int) rx.Options {
	return rx.Options{
		Receives: c.receives(), Invalidates: c.invalidates(), KeySend: c.KeySend, NoPack: c.NoPack,
		Path: c.path(number), Poll: c.Poll,
	}
}

// path returns the capture path of a data channel, or nil if there is none.
func (c *Config) path(number int) *capture.Path {
	if c.Capture == nil {
		return nil
	}
	return c.Capture(number - 1)
}
