package fleet

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// Model is a fleet, and the cost of a session in it.
type Model struct {
	Units, Hosts int
	Listed       int           // number of I/O units in the list of a host
	Neighbours   bool          // hosts of one I/O unit have the same list; otherwise each has its own list
	MaxHosts     int           // of an I/O unit, which refuses further hosts
	Session      time.Duration // time of an I/O unit, with all its processors, for a session
	Detect       time.Duration // until a host notices that its I/O unit is gone
	// Gone says what a host sees of an I/O unit that is gone.
	Gone Gone
	Seed uint64
}

// Gone is the way in which an I/O unit is gone.
type Gone int

// The ways in which an I/O unit can be gone.
const (
	MachineGone Gone = iota // the machine does not answer
	ProcessGone             // the machine refuses connections
)

// handshake is how long a host tries a machine that does not answer.
const handshake = 10 * time.Second

// Result is what happened to the hosts that lost their I/O unit.
type Result struct {
	Lost     int           // hosts that lost their I/O unit
	In       int           // hosts of Lost that have an I/O unit again
	Half     time.Duration // from the loss until half of Lost have an I/O unit
	All      time.Duration // from the loss until the last of In has an I/O unit
	Dials    int           // attempts that an existing I/O unit has answered
	Refused  int           // attempts refused because there were too many hosts
	Most     int           // most hosts of one I/O unit, at the end
	MostWork time.Duration // most time that one I/O unit has worked
}

// unit is an I/O unit.
type unit struct {
	gone  bool
	hosts int
	free  time.Time // when the I/O unit can begin with another session
	work  time.Duration
}

// member is a host that looks for an I/O unit.
type member struct {
	list  []int // I/O units, in order of preference
	race  *uplink.Race
	retry uplink.Backoff
	round int  // number of the race; results of earlier races are ignored
	in    bool // the host has an I/O unit again
}

type fleet struct {
	Model
	units  []unit
	events events
	start  time.Time
	now    time.Time
	lost   []*member
	times  []time.Duration
	result Result
}

// Lose removes the first I/O units, as many as gone, at once. They come back after back, or never
// if back is 0. Lose follows their hosts until all hosts that can have another I/O unit have one,
// but not longer than most.
func (m Model) Lose(gone int, back, most time.Duration) Result {
	f := &fleet{Model: m, units: make([]unit, m.Units), start: time.Unix(0, 0)}
	f.now = f.start
	random := rand.New(rand.NewPCG(m.Seed, 1))
	for i := range m.Hosts {
		h := &member{list: m.list(i, random), retry: uplink.Backoff{
			Min: 100 * time.Millisecond, Max: 5 * time.Second, Rand: random.Int64N,
		}}
		f.units[h.list[0]].hosts++
		if h.list[0] < gone {
			f.lost = append(f.lost, h)
		}
	}
	for i := range gone {
		f.units[i].gone, f.units[i].hosts = true, 0
	}
	if back > 0 {
		f.after(back, func() {
			for i := range gone {
				f.units[i].gone = false
			}
		})
	}
	for _, h := range f.lost {
		f.after(m.Detect, func() { f.begin(h, slices.Concat(h.list[1:], h.list[:1])) })
	}
	for len(f.events) > 0 && f.events[0].at.Sub(f.start) <= most && len(f.times) < len(f.lost) {
		e := heap.Pop(&f.events).(event)
		f.now = e.at
		e.do()
	}
	r := &f.result
	r.Lost, r.In = len(f.lost), len(f.times)
	slices.Sort(f.times)
	if half := (r.Lost + 1) / 2; half > 0 && r.In >= half {
		r.Half = f.times[half-1]
	}
	if r.In > 0 {
		r.All = f.times[r.In-1]
	}
	for i := range f.units {
		r.Most, r.MostWork = max(r.Most, f.units[i].hosts), max(r.MostWork, f.units[i].work)
	}
	return *r
}

// list returns the I/O units in the list of a host.
func (m *Model) list(host int, random *rand.Rand) []int {
	first := host % m.Units
	list := []int{first}
	for len(list) < m.Listed {
		next := (first + len(list)) % m.Units
		if !m.Neighbours {
			next = random.IntN(m.Units)
		}
		if !slices.Contains(list, next) {
			list = append(list, next)
		}
	}
	return list
}

func (f *fleet) after(d time.Duration, do func()) { heap.Push(&f.events, event{f.now.Add(d), do}) }

// begin starts a race of a host for the I/O units in this order.
func (f *fleet) begin(h *member, order []int) {
	addrs := make([]string, 0, len(order))
	for _, unit := range order {
		addrs = append(addrs, strconv.Itoa(unit))
	}
	h.race = uplink.NewRace(addrs, 0, &h.retry)
	h.round++
	f.act(h, h.race.Start(f.now))
}

// later calls event after d, and carries out the actions of event, if the present race of the
// host still goes on then.
func (f *fleet) later(h *member, d time.Duration, event func() []uplink.RaceAction) {
	round := h.round
	f.after(d, func() {
		if !h.in && h.round == round {
			f.act(h, event())
		}
	})
}

// act carries out the actions of a race.
func (f *fleet) act(h *member, actions []uplink.RaceAction) {
	for _, a := range actions {
		unit, _ := strconv.Atoi(a.Unit) // begin has made the name from the number
		u := &f.units[unit]
		switch {
		case a.Do == uplink.Dial && u.gone && f.Gone == MachineGone:
			f.later(h, handshake, func() []uplink.RaceAction { return h.race.DialFailed(f.now, a.Unit, false) })
		case a.Do == uplink.Dial && u.gone:
			f.later(h, 0, func() []uplink.RaceAction { return h.race.DialFailed(f.now, a.Unit, true) })
		case a.Do == uplink.Dial:
			f.result.Dials++
			f.later(h, 0, func() []uplink.RaceAction { return h.race.Answered(f.now) })
			took := u.spend(f.now, f.Session/2)
			f.later(h, took, func() []uplink.RaceAction { return h.race.Dialled(f.now, a.Unit, took) })
		case a.Do == uplink.Open && u.hosts >= f.MaxHosts:
			f.result.Refused++
			f.later(h, 0, func() []uplink.RaceAction { return h.race.OpenFailed(f.now, false) })
		case a.Do == uplink.Open:
			u.hosts++
			h.in = true
			f.times = append(f.times, f.now.Add(u.spend(f.now, f.Session/2)).Sub(f.start))
			return
		}
	}
	if h.race.Over() {
		pause := h.retry.Failed
		if h.race.Restarting() {
			pause = h.retry.Restarting
		}
		f.later(h, pause(), func() []uplink.RaceAction {
			f.begin(h, h.list)
			return nil
		})
		return
	}
	if wake := h.race.Wake(); !wake.IsZero() {
		f.later(h, max(wake.Sub(f.now), 0), func() []uplink.RaceAction {
			if next := h.race.Wake(); next.IsZero() || next.After(f.now) {
				return nil // the time to wake has changed meanwhile
			}
			return h.race.Tick(f.now)
		})
	}
}

// spend makes the I/O unit work, after all work that was given to it before. It returns the time
// until the work is done.
func (u *unit) spend(now time.Time, work time.Duration) time.Duration {
	if u.free.Before(now) {
		u.free = now
	}
	u.free = u.free.Add(work)
	u.work += work
	return u.free.Sub(now)
}

// event is an action at a time.
type event struct {
	at time.Time
	do func()
}

// events is a heap. The next event is first.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
