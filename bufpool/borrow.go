package bufpool

import (
	"fmt"
	"maps"
	"slices"

	"github.com/splitnic/splitnic/protocol"
)

// What the pools decide about those that the peer lends.

// addRemote takes a pool that the peer lends.
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
		if keys = p.peerKeys.take(&r.lent); keys == nil {
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

// find gives a pool that is lent its key, if that has come.
func (k *keys) find(r *Remote) bool {
	if len(k.early) == 0 {
		r.keyless = true
		k.waiting = append(k.waiting, r)
		return false
	}
	r.setKey(k.early[0])
	k.early = slices.Delete(k.early, 0, 1)
	return true
}

// keyed hears a key that the peer has sent. The peer may want the pool back already.
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
	r.setKey(key)
	if r.state == remoteClosed {
		return append(out, Action{Do: Stop, Remote: r, Last: true}), nil
	}
	return append(out, Action{Do: Use, Remote: r}), nil
}

// forget forgets remote pools of a channel that were closed long ago. They are kept
// at all because updates of them may still be on their way; a peer that never uses a
// reference again must not make us keep more and more. One of them that nobody uses
// any more is returned, nil if there is none.
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

// close marks a pool as one of the peer's own again.
func (p *Pools) close(r *Remote) {
	if r.state != remoteClosed {
		r.state = remoteClosed
		p.closed++
		r.closed = p.closed
	}
}

// giveBack begins to give back a pool that came on request and is not used any more.
func (p *Pools) giveBack(out []Action) []Action {
	for _, ref := range slices.Sorted(maps.Keys(p.remote)) {
		r := p.remote[ref]
		if r.state != remoteInUse {
			continue
		}
		if r.idle++; r.Used() {
			r.idle = 0
		}
		if r.extra && r.idle >= p.cfg.IdleTicks && p.ownFlush.giving == nil && !r.keyless {
			r.state, p.ownFlush.giving = remoteStopping, r
			out = append(out, Action{Do: Stop, Remote: r})
		}
	}
	return out
}

// stopped goes on when nothing is on its way to a pool.
func (p *Pools) stopped(r *Remote, last bool, out []Action) []Action {
	r.stopped = true
	if last {
		return p.done(out)
	}
	return p.give(out)
}

// give gives back the pool that is to be given, if it has stopped and no flush is
// out, unless the peer has taken it back itself.
func (p *Pools) give(out []Action) []Action {
	r := p.ownFlush.giving
	if r == nil || !r.stopped || p.ownFlush.awaited {
		return out
	}
	p.ownFlush.giving = nil
	if r.state != remoteStopping {
		return out
	}
	r.state, p.ownFlush.given = remoteGiven, r
	p.count.Given++
	return p.request(r.Ref|protocol.FlushGiveBack, out)
}

// ask asks for another pool for a sender that lacks an element, one like the
// smallest that fits, or like the largest if none does; unless the peer has been
// asked a moment ago.
func (p *Pools) ask(e *Event, out []Action) []Action {
	if p.asked.open || p.ending || e.Size == 0 {
		return out
	}
	if p.count.Lent != p.asked.lentThen {
		p.asked.lentThen, p.asked.patience = p.count.Lent, p.cfg.PatienceMin // the last one was granted
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
	// What comes with other elements is one of the first pools: those with a key for
	// each element take their time. The one that was asked for may come after another
	// one has been; then it goes back when the peer wants it to.
	p.asked.sizes[e.Channel-1] = LentSize(size)
	return append(out, Action{Do: Ask, Channel: e.Channel, Size: size, Elements: like.Len()})
}

// closer reports whether elements of a bytes are more like what size bytes need than
// those of b are.
func closer(a, b, size int) bool {
	if a >= size && b >= size {
		return a < b
	}
	return a > b
}

// HearKeys hears keys of a pool that the peer is about to lend, in order; from element
// 0 on they are another pool's.
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
