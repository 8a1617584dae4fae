package pairs

import "time"

const (
	// After an end that a host has caused, two hosts get no offer for Config.Rest. Each time
	// this time doubles, up to longestRest times as long. It is as at first again after a
	// connection that has lasted for the time lasted, or when no such end has followed for the
	// time forgiven.
	longestRest = 60
	lasted      = time.Minute
	forgiven    = 10 * time.Minute
	// mostRests is the largest number of rests that are kept.
	mostRests = 1 << 14
)

// rests has the rests of hosts, also of those whose sessions have ended: a host must not get
// rid of a rest by a change of its settings, or by another session.
type rests map[restKey]rest

// restKey identifies two hosts by their keys, in ascending order. All sessions of a key share
// its rests, whatever names they have. Names only tell hosts apart that share a key.
type restKey [2]string

func restKeyOf(x, y *Facts) restKey {
	a, b := x.Key, y.Key
	if a == b {
		a, b = a+"/"+x.Name, b+"/"+y.Name
	}
	return restKey{min(a, b), max(a, b)}
}

// rest says until when two hosts get no offer, and for how long after the next end.
type rest struct {
	until time.Time
	next  time.Duration
}

// over reports whether a rest has no more effect.
func (r rest) over(now time.Time) bool { return now.Sub(r.until) >= forgiven }

// begin makes two hosts wait for their next offer, at first for the given time. long says that
// their connection has lasted for the time lasted.
func (rs rests) begin(now time.Time, k restKey, first time.Duration, long bool) {
	r, ok := rs[k]
	if !ok || long || r.over(now) {
		r.next = first
	}
	if !ok && len(rs) >= mostRests {
		rs.makeRoom(now)
	}
	rs[k] = rest{until: now.Add(r.next), next: min(2*r.next, longestRest*first)}
}

// makeRoom removes the rests that are over, or, if there are none, the one that ends first.
func (rs rests) makeRoom(now time.Time) {
	var first restKey
	for k, r := range rs {
		if r.over(now) {
			delete(rs, k)
		} else if o, ok := rs[first]; !ok || r.until.Before(o.until) {
			first = k
		}
	}
	if len(rs) >= mostRests {
		delete(rs, first)
	}
}
