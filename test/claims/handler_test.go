package claims

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

func TestHandlerForEachChannel(t *testing.T)     { inMemory(t, handlerForEachChannel) }
func TestRDMAHandlerForEachChannel(t *testing.T) { onSoftRoCE(t, handlerForEachChannel) }

// Every data channel has its own completion queues. Their completion vector is the channel's number
// modulo the device's number of vectors. The control channel has another completion queue.
func handlerForEachChannel(t *testing.T, on fabricOf) {
	const queues = 4
	cfg := answering
	cfg.Queues = queues
	p := newPair(t, on, cfg)
	p.traffic()
	for _, side := range sides {
		vectors := p.devices[side].Limits().CompVectors
		if vectors < 1 {
			t.Fatalf("%s: %d completion vectors", side, vectors)
		}
		made := map[int]entry{}
		for _, e := range p.pick(side, cqMade) {
			made[e.cq] = e
		}
		users := map[int]int{}
		for _, e := range p.pick(side, qpMade) {
			ch := p.channel(side, e.qpn)
			for _, cq := range []int{e.cq, e.sendCQ} {
				if other, used := users[cq]; used && other != ch {
					t.Errorf("%s: channels %d and %d report to one completion queue", side, other, ch)
				}
				users[cq] = ch
				if ch > 0 && made[cq].vector != ch%vectors {
					t.Errorf("%s: channel %d is on completion vector %d of %d", side, ch, made[cq].vector, vectors)
				}
			}
		}
		for _, e := range p.pick(side, sendDone, recvDone) {
			if users[e.cq] != p.channel(side, e.qpn) {
				t.Errorf("%s: a completion of channel %d in the queue of channel %d", side, p.channel(side, e.qpn), users[e.cq])
			}
		}
	}
}

func TestHandlersAreIndependent(t *testing.T)     { inMemory(t, handlersAreIndependent) }
func TestRDMAHandlersAreIndependent(t *testing.T) { onSoftRoCE(t, handlersAreIndependent) }

// While the handler of one data channel is stuck because its netdevice queue is full, the handlers
// of the other channels and of the control channel continue.
func handlersAreIndependent(t *testing.T, on fabricOf) {
	cfg := answering
	cfg.Queues = 2
	// No further pool is lent to the stuck channel, however long the test takes.
	cfg.Pools, cfg.MaxPools = []messaging.PoolConfig{{ElementSize: 2048, Elements: 16}}, 1
	p := newPair(t, on, cfg)
	stuck := make([][]byte, 4000)
	for i := range stuck {
		stuck[i] = p.newFrame(1000)
	}
	sent := p.feed(hostSide, 0, stuck...)
	// Wait until the port has been full, and the peer has no credit left.
	p.until(func() error {
		h, u := p.endpoints[hostSide].conn.Stats().Channels[0], p.endpoints[unitSide].conn.Stats().Channels[0]
		if u.RxPortBusy == 0 || h.Remote.Available != 0 {
			return fmt.Errorf("channel 1 is not stuck: %+v, %+v", h, u)
		}
		return nil
	})
	from := p.now()
	p.cross(hostSide, 1, repeat(500, 200)...)
	p.cross(unitSide, 1, repeat(500, 200)...)
	p.cross(unitSide, 0, repeat(500, 200)...)
	p.ask(hostSide)
	p.ask(unitSide)
	if n := len(between(ofQP(p.qpns[hostSide][1], p.pick(hostSide, sendPosted)), from, p.now())); n > 16 {
		t.Errorf("the stuck channel made %d writes", n)
	}
	p.expect(unitSide, 0, stuck...)
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestAttentionOncePerBatch(t *testing.T)     { inMemory(t, attentionOncePerBatch) }
func TestRDMAAttentionOncePerBatch(t *testing.T) { onSoftRoCE(t, attentionOncePerBatch) }

// Writes that are ready together are posted together, with one doorbell. Only the last one has a
// solicited event, which wakes the receiver. Some writes are signaled, not all.
func attentionOncePerBatch(t *testing.T, on fabricOf) {
	p := newEndpoints(t, on, map[string]messaging.Config{})
	p.connect()
	var frames [][]byte
	for range 200 {
		frames = append(frames, p.newFrame(800))
	}
	p.send(hostSide, 0, frames...)
	p.start()
	p.expect(unitSide, 0, frames...)
	batches := map[int][]entry{}
	signaled := 0
	for _, w := range p.writes(hostSide) {
		batches[w.batch] = append(batches[w.batch], w.entry)
		if w.send.Flags&fabric.Signaled != 0 {
			signaled++
		}
	}
	for _, b := range batches {
		for i, w := range b {
			if last := i == len(b)-1; last != (w.send.Flags&fabric.Solicited != 0) {
				t.Errorf("write %d of a batch of %d has flags %#x", i, len(b), w.send.Flags)
			}
		}
	}
	if n := len(batches); n == 0 || n > 100 {
		t.Errorf("%d doorbells for 200 frames that were ready together", n)
	}
	if signaled == 0 || signaled > 50 {
		t.Errorf("%d writes of 200 frames asked for a completion", signaled)
	}
}

func TestPollArmPoll(t *testing.T)     { inMemory(t, pollArmPoll) }
func TestRDMAPollArmPoll(t *testing.T) { onSoftRoCE(t, pollArmPoll) }

// A handler requests notification when its queue is empty, polls the queue once more, and only then
// sleeps until the event. Handlers of data channels request notification of solicited completions
// only, the handler of the control channel of any completion.
func pollArmPoll(t *testing.T, on fabricOf) {
	cfg := answering
	cfg.KeepAlive, cfg.PeerTimeout = time.Hour, 2*time.Hour // nothing else wakes a handler
	p := newPair(t, on, cfg)
	// A completion that arrives between the poll and the notification request raises no event. A
	// handler that did not poll again would sleep on, here until another one arrives.
	for _, side := range sides {
		cqs := p.devices[side].(*recorder).last.Load().cqs
		control, data := cqs[0], cqs[2] // cqs[1] is the send queue of data channel 1
		f, g := p.newFrame(100), p.newFrame(100)
		data.miss(p.missed(side, cq.RoleReceiver,
			func() { p.feed(other(side), 0, f) }, func() { p.feed(other(side), 0, g) }))
		p.cross(other(side), 0, 100)
		p.expect(side, 0, f, g)
		var asking sync.WaitGroup
		asks := make(chan func(), 2)
		ask := func() { asks <- func() { p.ask(other(side)) } }
		control.miss(p.missed(side, cq.RoleControl, ask, ask))
		for range cap(asks) {
			asking.Go(func() { (<-asks)() })
		}
		p.ask(side)
		asking.Wait()
		if t.Failed() {
			return
		}
		p.asleep()
	}
	for range 20 { // one at a time, so that the handlers sleep in between
		for _, side := range sides {
			p.cross(side, 0, 100)
			p.ask(side)
		}
		p.asleep()
	}
	for _, side := range sides {
		only := map[int]bool{}
		for _, e := range p.pick(side, qpMade) {
			only[e.cq] = p.channel(side, e.qpn) > 0
		}
		for cq, data := range only {
			arms, events := 0, 0
			var last what
			for _, e := range p.pick(side, armed, polledEmpty, recvDone, sendDone, eventRead) {
				if e.cq != cq {
					continue
				}
				switch e.what {
				case armed:
					arms++
					if last != polledEmpty {
						t.Errorf("%s: armed a queue that was not found empty before", side)
					}
					if e.only != data {
						t.Errorf("%s: armed with solicited only %t, for data %t", side, e.only, data)
					}
				case eventRead:
					events++
				default:
				}
				if e.what != eventRead {
					last = e.what
				}
			}
			if arms < 10 || events < 10 {
				t.Errorf("%s: armed %d times, %d events", side, arms, events)
			}
		}
	}
}

// missed has a completion missed by a side's handler with this role. The handler must not sleep
// until it has polled it.
func (p *pair) missed(side string, role cq.Role, arrive, wake func()) *missed {
	wakeups := func() (n uint64) {
		for _, h := range p.endpoints[side].conn.Stats().Handlers {
			for _, w := range h.Workers {
				if w.Role == role {
					n += w.Wakeups
				}
			}
		}
		return n
	}
	before := uint64(0)
	return &missed{ctx: p.alive(), wake: wake,
		arrive: func() { before = wakeups(); arrive() },
		taken: func() {
			if n := wakeups() - before; n != 0 {
				p.t.Errorf("%s: the handler (%s) has slept although a completion had arrived before it requested notification",
					side, role)
			}
		}}
}

// asleep waits until each receive completion queue was armed and then found empty after its last
// completion: the next completion raises an event.
func (p *pair) asleep() {
	p.t.Helper()
	for _, side := range sides {
		for _, made := range p.pick(side, qpMade) {
			p.poll(func() error {
				var last [2]what
				for _, e := range p.pick(side, armed, polledEmpty, recvDone, sendDone) {
					if e.cq == made.cq {
						last = [2]what{last[1], e.what}
					}
				}
				if last != [2]what{armed, polledEmpty} {
					return fmt.Errorf("%s: the handler of queue pair %d does not sleep", side, made.qpn)
				}
				return nil
			})
		}
	}
}
