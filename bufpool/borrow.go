package bufpool

import (
	"fmt"
	"maps"
	"slices"

	"github.com/splitnic/splitnic/protocol"
)

// This file handles the pools that the peer lends.

// addRemote adds a pool that the peer lends.
func (p *Pools) addRemote(r *Remote, out []Action) ([]Action, error) {
	if old := p.remote[r.Ref]; old != nil && old.state != remoteClosed {
		return out, fmt.Errorf("%w: pool %d", ErrPoolTwice, r.Ref)
	}
	pools, elements := 1, int(r.lent.Elements)
	for _, o := range p.remote {
		if o.Channel == r.Channel && o.state != remoteClosed {
			pools++
			elements += o.Len()
		}
	}
	switch {
	case pools > p.cfg.PeerPools:
		return out, fmt.Errorf("%w: pool %d is number %d of data channel %d, %d are agreed",
			ErrTooManyPools, r.Ref, pools, r.Channel, p.cfg.PeerPools)
	case elements > p.cfg.MaxElements:
		return out, fmt.Errorf("%w: pool %d brings data channel %d to %d elements",
			ErrTooManyElements, r.Ref, r.Channel, elements)
	}
	var keys []uint32
	if p.cfg.PeerOneTouch && r.lent.RKey == 0 && !r.KeyFollows {
		if keys = p.peerKeys.complete(&r.lent); keys == nil {
			return out, fmt.Errorf("%w: pool %d of %d elements", ErrKeys, r.Ref, r.lent.Elements)
		}
	}
	unused := p.forget(r.Channel)
	if old := p.remote[r.Ref]; unused == nil && old != nil && old.stopped {
		unused = old
	}
	r.keep(unused, keys)
	r.extra = p.asked.sizes[r.Channel-1] == r.ElementSize()
	p.remote[r.Ref] = r
	p.count.Lent++
	if r.KeyFollows && !p.keys[r.Channel-1].find(r) {
		return out, nil
	}
	return append(out, Action{Do: Use, Remote: r}), nil
}

// find sets the key of a pool that is lent, if the key has arrived. Otherwise the pool waits
// for its key.
func (k *keys) find(r *Remote) bool {
	if len(k.early) == 0 {
		r.keyless = true
		k.waiting = append(k.waiting, r)
		return false
	}
	r.rkey = k.early[0]
	k.early = slices.Delete(k.early, 0, 1)
	return true
}

// keyed handles a key that the peer has sent. The peer may already have taken the pool back.
func (p *Pools) keyed(channel int, key uint32, out []Action) ([]Action, error) {
	k := &p.keys[channel-1]
	if len(k.waiting) == 0 {
		if len(k.early) == p.cfg.PeerPools {
			return out, fmt.Errorf("%w: %#x, and %d more", ErrKeyMessage, key, len(k.early))
		}
		k.early = append(k.early, key)
		return out, nil
	}
	r := k.waiting[0]
	k.waiting = slices.Delete(k.waiting, 0, 1)
	r.keyless = false
	r.rkey = key
	if r.state == remoteClosed {
		return append(out, Action{Do: Stop, Remote: r, Last: true}), nil
	}
	return append(out, Action{Do: Use, Remote: r}), nil
}

// forget removes the remote pools of a channel that were closed longest ago, if there are
// too many. Closed pools are kept because updates for them may still arrive. The limit is
// for a peer that never uses a reference twice. forget returns one of the removed pools that
// no sender uses any more, or nil.
func (p *Pools) forget(channel int) (unused *Remote) {
	for {
		var oldest *Remote
		pools, elements := 0, 0
		for _, r := range p.remote {
			if r.Channel != channel || r.state != remoteClosed {
				continue
			}
			pools++
			elements += r.Len()
			if oldest == nil || r.closed < oldest.closed {
				oldest = r
			}
		}
		if pools <= p.cfg.KeptPools && elements <= p.cfg.MaxElements {
			return unused
		}
		delete(p.remote, oldest.Ref)
		if oldest.stopped {
			unused = oldest
		}
	}
}

func (p *Pools) close(r *Remote) {
	if r.state != remoteClosed {
		r.state = remoteClosed
		p.closed++
		r.closed = p.closed
	}
}

// stopIdle starts to give back a pool that was lent on request and has been idle for long.
func (p *Pools) stopIdle(out []Action) []Action {
	for _, ref := range slices.Sorted(maps.Keys(p.remote)) {
		r := p.remote[ref]
		if r.state != remoteInUse {
			continue
		}
		if r.idle++; r.Used() {
			r.idle = 0
		}
		if r.extra && r.idle >= p.cfg.IdleTicks && len(p.ownFlush.stopping) == 0 && !r.keyless {
			out = p.stop([]*Remote{r}, out)
		}
	}
	return out
}

// stop makes the senders of pools stop, so that the pools can be given back.
func (p *Pools) stop(pools []*Remote, out []Action) []Action {
	for _, r := range pools {
		r.state = remoteStopping
		out = append(out, Action{Do: Stop, Remote: r})
	}
	p.ownFlush.stopping = pools
	return out
}

// stopped continues when all transfers to a pool have completed.
func (p *Pools) stopped(r *Remote, last bool, out []Action) []Action {
	r.stopped = true
	if last {
		return p.finished(out)
	}
	return p.flushRemote(out)
}

// flushRemote requests that the peer takes back the pools that this side returns, if their
// senders have stopped and no flush is unanswered. It leaves out pools that the peer has
// taken back by itself.
func (p *Pools) flushRemote(out []Action) []Action {
	own := &p.ownFlush
	running := func(r *Remote) bool { return !r.stopped }
	if len(own.stopping) == 0 || slices.ContainsFunc(own.stopping, running) || own.awaited {
		return out
	}
	var refs []uint32
	for _, r := range own.stopping {
		if r.state == remoteStopping {
			r.state = remoteFlushing
			own.remote, refs = append(own.remote, r), append(refs, r.Ref|protocol.FlushGiveBack)
		}
	}
	own.stopping = nil
	if len(refs) == 0 {
		return out
	}
	p.count.Given += uint64(len(refs))
	return p.request(refs, out)
}

// ask asks the peer for another pool, for a sender that lacks an element. The pool is to be
// like the smallest one whose elements are large enough, or otherwise like the largest one.
// ask does nothing if the last request is too recent.
func (p *Pools) ask(e *Event, out []Action) []Action {
	if p.asked.open || p.ending || e.Size == 0 {
		return out
	}
	if p.count.Lent != p.asked.lentThen {
		p.asked.lentThen, p.asked.patience = p.count.Lent, p.cfg.PatienceMin // the last request was granted
	}
	if e.Now.Sub(p.asked.at) < p.asked.patience {
		return out
	}
	var like *Remote
	pools := 0
	for _, ref := range slices.Sorted(maps.Keys(p.remote)) {
		r := p.remote[ref]
		if r.Channel != e.Channel || r.state != remoteInUse {
			continue
		}
		pools++
		if like == nil || closer(r.ElementSize(), like.ElementSize(), e.Size) {
			like = r
		}
	}
	if pools == 0 || pools >= p.cfg.PeerPools {
		return out
	}
	p.asked.open, p.asked.at, p.asked.patience = true, e.Now, min(2*p.asked.patience, p.cfg.PatienceMax)
	p.count.Asked++
	size := max(like.ElementSize(), e.Size)
	// A pool with elements of another size is not the one that was asked for but one of the
	// first pools, which can take a while if each element has a key. If the pool that was
	// asked for arrives after a later request for another size, it does not count as lent on
	// request, and only the peer ends it.
	p.asked.sizes[e.Channel-1] = LentSize(size)
	return append(out, Action{Do: Ask, Channel: e.Channel, Size: size, Elements: like.Len()})
}

// closer reports whether elements of a bytes suit size bytes better than elements of b bytes.
func closer(a, b, size int) bool {
	if a >= size && b >= size {
		return a < b
	}
	return a > b
}

// HearKeys records the keys of some elements of a pool that the peer is about to lend. Keys
// arrive in the order of the elements; those of element 0 begin another pool.
func (p *Pools) HearKeys(k protocol.PoolKeys) error {
	switch {
	case k.First == 0:
		p.peerKeys.ref, p.peerKeys.keys = k.Pool, make([]uint32, 0, k.Len())
	case p.peerKeys.ref != k.Pool || uint32(len(p.peerKeys.keys)) != k.First:
		return errKeys
	}
	for i := range k.Len() {
		p.peerKeys.keys = append(p.peerKeys.keys, k.At(i))
	}
	return nil
}
