package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet/frametest"
)

var (
	errLate   = errors.New("it takes too long")
	errNobody = errors.New("the session goes on though it should have ended")
)

// cycle is one session from its beginning to its end.
type cycle struct {
	*plan
	g    *ground
	ends [2]*end
}

// run runs a cycle and returns the tally of the frames that arrived at each side. When run returns,
// all resources of the cycle have been released.
func (g *ground) run(p *plan) (sums [2]tally, err error) {
	c := &cycle{plan: p, g: g}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%v: %w", p, err)
		}
	}()
	if p.fault == faultStranger {
		return sums, c.stranger()
	}
	dev, err := g.open(host)
	if err != nil {
		return sums, err
	}
	for s := range p.cfg {
		p.cfg[s].Timing = g.timing
	}
	h := &device{Device: dev, loose: p.loose[host]}
	g.unit.loose = p.loose[unit]
	c.ends = [2]*end{newEnd(host, p, h), newEnd(unit, p, g.unit)}
	err = c.makePorts()
	if err == nil {
		err = c.session()
	}
	for _, e := range c.ends {
		for _, port := range e.ports {
			sums[e.side].add(&port.got)
			err = errors.Join(err, port.Close())
		}
	}
	err = errors.Join(err, sums[host].first, sums[unit].first, p.losses(sums[p.at]), h.Close())
	if p.fault == faultKill && p.at == unit {
		err = errors.Join(err, g.reopen())
	}
	return sums, errors.Join(err, g.unexpected())
}

// makePorts makes the ports of both ends.
func (c *cycle) makePorts() error {
	for q := range c.queues {
		var streams [2]stream // that each side sends
		for s := range streams {
			streams[s] = stream{key: mix(c.key, uint64(2*q+s)), limit: c.limit[q], mtu: c.mtu}
		}
		for s, e := range c.ends {
			e.device.spoils = nil
			port, err := newPort(streams[s], streams[1-s], uint64(c.frames[s][q]), uint64(c.frames[1-s][q]))
			if err != nil {
				return err
			}
			e.ports = append(e.ports, port)
			port.got.lossy = c.unreliable() || c.fault == faultLoss && side(s) == c.at
		}
	}
	if !c.fault.traffic() {
		return nil
	}
	c.ends[c.at].ports[c.queue].trigger = c.after
	// The fault of the other side's netdevice takes the place of the frame that would have been the
	// trigger.
	other := c.ends[c.at.other()]
	sender := other.ports[c.queue]
	switch c.fault {
	case faultFrame:
		other.device.spoils = &spoiling{stream: sender.out, number: c.after}
	case faultNetdev:
		sender.vanishes = c.after
	default:
	}
	return nil
}

// session runs both ends.
func (c *cycle) session() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errLate)
	defer cancel()
	handshake, giveUp := context.WithCancel(ctx)
	defer giveUp()
	if c.fault == faultLoss {
		c.g.net.DropUC(names[c.at.other()], c.drop)
	}
	h, u := c.ends[host], c.ends[unit]
	go h.run(func() error { return h.dial(handshake, c.g.ln.Addr().String(), c.g.keys[host]) })
	if c.fault == faultLeave && c.at == host && c.phase == phaseDialled {
		close(u.done) // the I/O unit gets no hello to accept
	} else {
		go u.run(func() error { return u.serve(handshake, c.g.ln) })
	}
	if c.delay > 0 {
		c.g.net.Delay(names[unit], c.delay)
		defer c.g.net.Delay(names[unit], 0)
	}
	err := c.traffic(ctx)
	if err != nil {
		giveUp()
		h.end(true)
		u.end(true)
	}
	for _, e := range c.ends {
		select {
		case <-e.done:
		case <-time.After(patience):
			return errors.Join(err, fmt.Errorf("%v: %w\n%s", e.side, errNobody, stacks()))
		}
	}
	c.recover()
	if err == nil && u.session == nil {
		err = c.rejection(ctx)
	}
	return errors.Join(err, h.closeErr, u.closeErr, c.verdict())
}

// traffic waits for the frames, or for the time of the fault, and ends the session as planned.
func (c *cycle) traffic(ctx context.Context) error {
	switch c.fault {
	case faultRefuse, faultLeave, faultFrame, faultNetdev:
		return nil // the session ends by itself, or the port or device makes the fault
	default:
	}
	for _, e := range c.ends {
		if err := c.await(ctx, e.started, "the start"); err != nil {
			return err
		}
	}
	if c.fault == faultNone {
		for _, e := range c.ends {
			for q, port := range e.ports {
				if c.unreliable() {
					c.arrived(port)
					continue
				}
				if err := c.await(ctx, port.all, fmt.Sprintf("the frames of queue %d at the %v", q, e.side)); err != nil {
					return err
				}
			}
		}
		if err := errors.Join(c.books(), c.windows()); err != nil {
			return err
		}
		c.ends[c.at].end(c.polite)
		return nil
	}
	if err := c.await(ctx, c.ends[c.at].ports[c.queue].reached, "the moment of the fault"); err != nil {
		return err
	}
	return c.strike()
}

// unreliable reports whether messages may get lost without a fault: on an RDMA device in mode
// send-uc, a late message counts as lost.
func (c *cycle) unreliable() bool { return c.g.net == nil && c.mode == protocol.ModeSendUC }

// quiet is the time without a frame after which no more frames are expected from an unreliable
// channel.
const quiet = 3 * time.Second

// arrived waits until all frames of an unreliable channel have arrived, or no more arrive.
func (c *cycle) arrived(p *port) {
	for before := never; ; {
		now := p.received.Load()
		if now == before {
			return
		}
		before = now
		select {
		case <-p.all:
			return
		case <-time.After(quiet):
		}
	}
}

// await waits for ch, and returns an error if an end ends before, or ctx.
func (c *cycle) await(ctx context.Context, ch <-chan struct{}, what string) error {
	var ended *end
	select {
	case <-ch:
		return nil
	case <-c.ends[host].done:
		ended = c.ends[host]
	case <-c.ends[unit].done:
		ended = c.ends[unit]
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w; %s\n%s", what, errLate, c.progress(), stacks())
	}
	select {
	case <-ch: // ready before the end
		return nil
	default:
		return fmt.Errorf("waiting for %s: the %v ended: %w; %s", what, ended.side, ended.err, c.progress())
	}
}

// progress returns how many frames of each stream have arrived.
func (c *cycle) progress() string {
	s := "received of those sent:"
	for _, e := range c.ends {
		for q, port := range e.ports {
			s += fmt.Sprintf(" %v queue %d %d of %d;", e.side, q, port.received.Load(), port.expect)
		}
	}
	return s
}

// books checks that at both sides all elements of the pools are accounted for, and that no frames
// were dropped.
func (c *cycle) books() error {
	for _, e := range c.ends {
		s := e.conn.Stats()
		for q, ch := range s.Channels {
			for _, p := range append(ch.LocalPools, ch.RemotePools...) {
				if err := p.Check(); err != nil {
					return fmt.Errorf("%v, queue %d, pool %d: %w", e.side, q, p.Ref, err)
				}
			}
			if ch.TxTooLong+ch.TxInvalid+ch.RxDropped+ch.RxOverMTU != 0 || ch.RxLost+ch.RxLate != 0 && !c.unreliable() {
				return fmt.Errorf("%v, queue %d: frames were dropped: %+v", e.side, q, ch)
			}
		}
	}
	return nil
}

// windows waits until there are as many memory windows as the lent pools need. The number may still
// change while a pool that was lent on request is created or withdrawn.
func (c *cycle) windows() error {
	for _, e := range c.ends {
		end := time.Now().Add(settle)
		for {
			want := e.windows()
			n := e.device.windows.Load()
			if n == want {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("the %v has %d memory windows, its pools need %d", e.side, n, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// strike makes a fault that the ports do not make.
func (c *cycle) strike() error {
	me, other := c.ends[c.at], names[c.at.other()]
	switch c.fault {
	case faultClose:
		me.end(c.polite)
	case faultLink:
		return me.session.Close()
	case faultQP:
		if err := me.device.fail(int(c.key % 16)); err != nil {
			return err
		}
		if c.unreliable() {
			// Soft-RoCE flushes the receives that are posted, but not those that are posted
			// later. If all elements were in use at the time, no completion reports the failure:
			// the other side's messages get lost, as they may.
			c.later(me)
		}
	case faultKill:
		me.end(false)
		c.g.net.Kill(names[c.at])
	case faultCut:
		c.g.net.Cut(other)
	case faultPost:
		me.device.refuse()
		c.later(me)
	case faultRequest:
		status := fabric.Status(1 + c.key%21)
		c.g.net.OnSend(names[c.at], func(uint32, fabric.SendWR) fabric.Status { return status })
		c.later(me)
	case faultLoss:
		me.end(c.polite) // messages have been lost already
	case faultStall:
		c.g.net.Stall(other)
		me.end(c.polite)
	default:
		return fmt.Errorf("nobody knows how to make a fault of kind %s", c.fault)
	}
	return nil
}

// later ends an end that might send nothing more, so that the fault shows only at a keep-alive, or
// not at all.
func (c *cycle) later(e *end) {
	go func() {
		t := time.NewTimer(3 * c.cfg[c.at].KeepAlive)
		defer t.Stop()
		select {
		case <-e.conn.Done():
		case <-t.C:
		}
		e.end(c.polite)
	}()
}

// recover removes the fault.
func (c *cycle) recover() {
	if c.g.net == nil {
		return
	}
	for _, name := range names {
		c.g.net.Heal(name)
		c.g.net.Resume(name)
		c.g.net.OnSend(name, nil)
		c.g.net.DropUC(name, 0)
	}
}

// rejection waits until the listener has ended a connection that is not accepted.
func (c *cycle) rejection(ctx context.Context) error {
	select {
	case <-c.g.rejected:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the listener keeps a connection that is over: %w", errLate)
	}
}

// stranger connects without being a host, and sends noise, or nothing.
func (c *cycle) stranger() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errLate)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.g.ln.Addr().String())
	if err != nil {
		return err
	}
	noise := make([]byte, c.key>>16%4096)
	frametest.Fill(noise, c.key)
	_, err = conn.Write(noise)
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return errors.Join(err, conn.Close())
	}
	if err := conn.Close(); err != nil {
		return err
	}
	return c.rejection(ctx)
}
