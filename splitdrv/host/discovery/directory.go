package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// Settings configures the DNS queries. Zero fields get their defaults.
type Settings struct {
	// Lookup returns the SRV records of a name; default that of a Resolver.
	Lookup func(ctx context.Context, name string) (Answer, error)
	// Shortest and Longest bound the time to live of an answer, after which the name is
	// queried again; default 5 s and 5 min. Up to a tenth is added, so that hosts that
	// started together do not query together for ever.
	Shortest, Longest time.Duration
	// RetryMin and RetryMax bound the pause after a failure, which doubles each time;
	// default 1 s and 30 s.
	RetryMin, RetryMax time.Duration
	// Keep is a directory in which the last answers are kept. A process uses them until the
	// first answer of DNS. The directory is created when needed; "": none.
	Keep string
	// Rand returns a random number below n; default that of math/rand.
	Rand func(n int64) int64
}

func (s *Settings) complete() {
	if s.Lookup == nil {
		s.Lookup = new(Resolver).Lookup
	}
	s.Shortest = cmp.Or(s.Shortest, 5*time.Second)
	s.Longest = cmp.Or(s.Longest, 5*time.Minute)
	s.RetryMin = cmp.Or(s.RetryMin, time.Second)
	s.RetryMax = cmp.Or(s.RetryMax, 30*time.Second)
	if s.Rand == nil {
		s.Rand = rand.Int64N
	}
}

// Status is the state of a name.
type Status struct {
	Name string `json:"name"`
	// Units is the number of I/O units in the last answer with any, which was received at
	// Answered; zero if there was none.
	Units    int       `json:"units"`
	Answered time.Time `json:"answered,omitzero"`
	// Failures counts the queries without an answer, or whose answer has no I/O units.
	Failures uint64 `json:"failures"`
	// Error is the error of the last query, "" if it succeeded.
	Error string `json:"error,omitempty"`
	// Kept is true while the answer in use is one that a previous process has kept.
	Kept bool `json:"kept,omitempty"`
	// Skipped counts the SRV records of the last answer that name no host and port.
	Skipped int `json:"skipped,omitempty"`
}

// Directory has the list of a host's I/O units. Any goroutine may call its methods.
type Directory struct {
	set  Settings
	host string
	log  *slog.Logger

	mu      sync.Mutex // guards the fields below, and the sources
	sources []*source
	changed chan struct{} // closed at the next change of the list
	// addresses has the addresses at which hosts were reached. A new answer of DNS removes
	// those of hosts that neither DNS nor the configuration names any more.
	addresses map[string]netip.Addr
}

// source is an entry of the configured list.
type source struct {
	name    string        // name of SRV records; "" for an address
	refresh chan struct{} // requests a query; capacity one
	reached chan struct{} // signaled when an I/O unit was reached at a new address; capacity one
	units   uplink.Candidates
	asked   bool // queried at least once
	failed  error
	status  Status
	unkept  bool // the last answer could not be kept; only follow uses it
}

// New returns the directory of the host named host. entries has addresses of I/O units and
// names of SRV records, in order of preference.
func New(entries []string, host string, set Settings, log *slog.Logger) (*Directory, error) {
	set.complete()
	d := &Directory{
		set: set, host: host, log: log, changed: make(chan struct{}), addresses: map[string]netip.Addr{},
	}
	for _, entry := range entries {
		if err := Check(entry); err != nil {
			return nil, err
		}
		s := &source{units: uplink.Candidates{entry}, asked: true}
		if name, ok := ByDNS(entry); ok {
			s = &source{
				name: name, refresh: make(chan struct{}, 1), reached: make(chan struct{}, 1), status: Status{Name: name},
			}
		}
		d.sources = append(d.sources, s)
	}
	return d, nil
}

// Units returns the known I/O units, in order of preference, and a channel that is closed
// when they change. It returns none before each name was queried; asked is true afterwards.
func (d *Directory) Units() (units uplink.Candidates, asked bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, s := range d.sources {
		if !s.asked {
			return nil, false, d.changed
		}
		all = append(all, s.units...)
	}
	return uplink.Distinct(all), true, d.changed
}

// Why returns the errors of names without known I/O units, or nil if all names have some.
func (d *Directory) Why() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sources {
		if len(s.units) == 0 && s.failed != nil {
			err = both(err, s.failed)
		}
	}
	return err
}

// Status returns the state of each name, in order; nil if there are no names.
func (d *Directory) Status() (all []Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sources {
		if s.name != "" {
			all = append(all, s.status)
		}
	}
	return all
}

// Refresh requests a query of each name, because no I/O unit is available: at once, but at most
// one in the time Settings.Shortest.
func (d *Directory) Refresh() {
	for _, s := range d.sources {
		wake.Up(s.refresh)
	}
}

// Run keeps the list up to date until ctx is done.
func (d *Directory) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range d.sources {
		if s.name != "" {
			wg.Go(func() { d.follow(ctx, s) })
		}
	}
	wg.Wait()
}

// follow queries a name repeatedly.
func (d *Directory) follow(ctx context.Context, s *source) {
	retry := d.backoff()
	for {
		a, err := d.set.Lookup(ctx, s.name)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			d.enter(s, &a)
			d.remember(s, &a)
			retry = d.backoff()
			pause := min(max(a.TTL, d.set.Shortest), d.set.Longest)
			d.wait(ctx, s, pause+time.Duration(d.set.Rand(int64(pause/10)+1)), &a)
		} else {
			d.fail(s, err)
			d.wait(ctx, s, retry.Failed(), nil)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// wait waits until a name is queried again, after a pause or because of Refresh. a, which is nil
// if the last query has failed, is kept again when an I/O unit was reached at a new address.
func (d *Directory) wait(ctx context.Context, s *source, pause time.Duration, a *Answer) {
	began, due := time.Now(), time.After(pause)
	for {
		select {
		case <-due:
			return
		case <-s.refresh:
			due = time.After(min(pause, d.set.Shortest) - time.Since(began))
		case <-s.reached:
			if a != nil {
				d.remember(s, a)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (d *Directory) backoff() uplink.Backoff {
	return uplink.Backoff{Min: d.set.RetryMin, Max: d.set.RetryMax, Rand: d.set.Rand}
}

func (d *Directory) enter(s *source, a *Answer) {
	units := Order(d.host, a.Records)
	d.mu.Lock()
	defer d.mu.Unlock()
	news := !slices.Equal(units, s.units)
	if news || s.failed != nil {
		d.log.Info("I/O units found by DNS", "name", s.name, "iounits", units, "records", len(a.Records),
			"skipped", a.Skipped)
	}
	if news || !s.asked {
		d.tell()
	}
	s.units, s.asked, s.failed = units, true, nil
	if news {
		d.forget()
	}
	s.status.Units, s.status.Skipped, s.status.Answered, s.status.Error = len(units), a.Skipped, time.Now(), ""
	s.status.Kept = false
}

// remember keeps an answer for the next process. If that fails, it only logs a warning.
func (d *Directory) remember(s *source, a *Answer) {
	err := shelf(d.set.Keep).put(s.name, a.Records, d.addressesOf(a.Records), time.Now())
	if err != nil && !s.unkept {
		d.log.Warn("the next process will not know it if DNS does not answer", "name", s.name, "error", err)
	}
	s.unkept = err != nil
}

// recall sets the I/O units of a source to those that a previous process has kept. The
// caller holds mu.
func (d *Directory) recall(s *source) {
	k, err := shelf(d.set.Keep).get(s.name, time.Now())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return
	case err != nil:
		d.log.Warn("what was kept of DNS cannot be used", "name", s.name, "error", err)
		return
	}
	s.units = Order(d.host, k.Records)
	maps.Copy(d.addresses, k.Addresses)
	s.status.Units, s.status.Answered, s.status.Kept = len(s.units), k.Answered, true
}

// fail records a failed query. The known I/O units stay. It logs a warning only once until
// there is an answer.
func (d *Directory) fail(s *source, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	level := slog.LevelWarn
	if s.failed != nil {
		level = slog.LevelDebug
	}
	if !s.asked {
		d.recall(s)
	}
	d.log.Log(context.Background(), level, "no I/O units found by DNS", "name", s.name, "error", err, "kept", len(s.units))
	if !s.asked {
		d.tell()
	}
	s.asked, s.failed = true, err
	s.status.Error = err.Error()
	s.status.Failures++
}

// tell notifies the goroutines that wait for a change. The caller holds mu.
func (d *Directory) tell() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// forget removes the addresses of hosts that no source names. The caller holds mu.
func (d *Directory) forget() {
	named := map[string]bool{}
	for _, s := range d.sources {
		for _, unit := range s.units {
			host, _, err := net.SplitHostPort(unit)
			if err != nil {
				host = unit // without a port
			}
			named[host] = true
		}
	}
	maps.DeleteFunc(d.addresses, func(host string, _ netip.Addr) bool { return !named[host] })
}

// addressesOf returns the known addresses of the targets of records.
func (d *Directory) addressesOf(records []Record) map[string]netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := map[string]netip.Addr{}
	for _, r := range records {
		if a, ok := d.addresses[r.Target]; ok {
			known[r.Target] = a
		}
	}
	return known
}
