package faults

import (
	"testing"
	"time"
)

// transfer is a TCP connection between a host and the LAN. Both ends write all the time, and
// compare the bytes that they read with the expected ones.
type transfer struct {
	t                testing.TB
	host, lan        *machine
	opened, accepted int
}

// unlimited is the rate of a transfer without a limit.
const unlimited = 0

// transfer opens a connection from the host to the LAN. rate is the rate of each direction in bytes
// a second.
func (r *fixture) transfer(h *host, rate int) *transfer {
	r.t.Helper()
	l := must[Flowing](r.t, r.unit, "Accept", Flow{NS: lanNS, Addr: lanAddress + ":0", Rate: rate})
	x := &transfer{t: r.t, host: h.m, lan: r.unit, accepted: l.ID}
	x.opened = must[Flowing](r.t, h.m, "Open", Flow{NS: appNS, Addr: l.Addr, Rate: rate}).ID
	r.t.Cleanup(func() {
		for m, id := range map[*machine]int{x.host: x.opened, x.lan: x.accepted} {
			if m.running() && m.call("Abort", id, &struct{}{}) != nil {
				r.t.Logf("a connection on %s could not be ended", m.name)
			}
		}
	})
	return x
}

// ends returns the progress of both ends.
func (x *transfer) ends() (opened, accepted Ends) {
	x.t.Helper()
	return must[Ends](x.t, x.host, "Progress", x.opened), must[Ends](x.t, x.lan, "Progress", x.accepted)
}

// moves waits until n more bytes have arrived at both ends, and returns how long
// that took.
func (x *transfer) moves(n int64) time.Duration {
	x.t.Helper()
	o, a := x.ends()
	o.Received += n
	a.Received += n
	return eventually(x.t, func() bool {
		nowO, nowA := x.ends()
		if nowO.Ended || nowA.Ended {
			x.t.Fatalf("the connection ended: at the host %+v, on the LAN %+v", nowO, nowA)
		}
		return nowO.Received >= o.Received && nowA.Received >= a.Received
	}, "%d more bytes at both ends", n)
}

// finish closes the connection and compares both ends.
func (x *transfer) finish() {
	x.t.Helper()
	o := must[Ends](x.t, x.host, "Finish", x.opened)
	a := must[Ends](x.t, x.lan, "Finish", x.accepted)
	if !o.Ended || !a.Ended || o.Error != "" || a.Error != "" || o.Sent != a.Received || a.Sent != o.Received ||
		o.Sent == 0 {
		x.t.Errorf("the connection did not arrive as it was sent: at the host %+v, on the LAN %+v", o, a)
	}
}

// numbered has two flows of numbered datagrams, from a host to the LAN and from the LAN to the
// host.
type numbered struct {
	t           testing.TB
	host, lan   *machine
	up, down    int // numbers of the senders
	atLAN, atUs int // numbers of the receivers
}

// longest is the time without a new datagram after which the ones still missing are considered
// lost.
const longest = 8 * time.Second

// numbered starts to send rate datagrams a second in each direction.
func (r *fixture) numbered(h *host, rate int) *numbered {
	r.t.Helper()
	toLAN := must[Flowing](r.t, r.unit, "Receive", Flow{NS: lanNS, Addr: lanAddress + ":0"})
	toUs := must[Flowing](r.t, h.m, "Receive", Flow{NS: appNS, Addr: h.address + ":0"})
	return &numbered{
		t: r.t, host: h.m, lan: r.unit, atLAN: toLAN.ID, atUs: toUs.ID,
		up:   must[Flowing](r.t, h.m, "Send", Flow{NS: appNS, Addr: toLAN.Addr, Rate: rate}).ID,
		down: must[Flowing](r.t, r.unit, "Send", Flow{NS: lanNS, Addr: toUs.Addr, Rate: rate}).ID,
	}
}

// finish ends both flows. It returns for each direction the counts of the receiver, and the number
// of sent datagrams.
func (n *numbered) finish() (up, down Counts) {
	n.t.Helper()
	end := func(from *machine, sender int, to *machine, receiver int) Counts {
		sent := must[Counts](n.t, from, "EndSequence", sender).Sent
		// Wait for the datagrams that are still in flight.
		var last Counts
		changed := time.Now()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for last.Received < sent && time.Since(changed) < longest {
			if now := must[Counts](n.t, to, "Counts", receiver); now != last {
				last, changed = now, time.Now()
			}
			<-tick.C
		}
		c := must[Counts](n.t, to, "EndSequence", receiver)
		c.Sent = sent
		return c
	}
	return end(n.host, n.up, n.lan, n.atLAN), end(n.lan, n.down, n.host, n.atUs)
}

// lost returns the number of datagrams that did not arrive.
func (c Counts) lost() uint64 { return c.Sent - c.Received }

// sound fails the test if a datagram arrived twice or changed, or none arrived unchanged.
func (c Counts) sound(t testing.TB, way string) {
	t.Helper()
	if t.Logf("datagrams %s: %d sent, %d lost, %d late", way, c.Sent, c.lost(), c.Late); c.Doubled != 0 || c.Wrong != 0 ||
		c.Received == 0 {
		t.Errorf("datagrams %s: %d came twice, %d were changed, %d were right", way, c.Doubled, c.Wrong, c.Received)
	}
}
