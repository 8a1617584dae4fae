package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/journal"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// AgentStatus is the status of an agent's process. Each card has its own status, a
// HostStatus, at its own socket.
type AgentStatus struct {
	Role     string       `json:"role"` // "agent"
	Name     string       `json:"name"`
	Software string       `json:"software"`
	Since    time.Time    `json:"since"` // of the process
	Devices  []string     `json:"devices"`
	MaxCards int          `json:"max_cards"`
	Cards    []cards.Info `json:"cards"`
	Reload   ReloadStatus `json:"reload"`
}

// agent is a process with many cards. It is a cards.Maker.
type agent struct {
	cfg       *Agent
	log       *slog.Logger
	store     *fdStore
	budget    *messaging.Budget
	noLatency error
	since     time.Time
	keyDir    string
	set       *cards.Set
	// openDevice opens an RDMA device and returns it with its queue-pair timeout.
	openDevice func(name string) (fabric.Device, uint8, error)

	mu      sync.Mutex // guards the fields up to reloads; held while a device is opened
	devices map[string]sharedDevice
	usual   string // device of the cards that specify none; empty until it is known
	there   map[string]*agentCard
	keys    Keys   // of the cards without their own keys
	reads   uint64 // number of times that reload has read the keys
	reloads ReloadStatus

	reloadingNow sync.Mutex // held during a reload: one at a time

	failing atomic.Bool // run ends with an error
}

// sharedDevice is an RDMA device that cards share. It is no fabric.Device itself, which would hide
// what else the device can do.
type sharedDevice struct {
	Device  fabric.Device
	timeout uint8 // advanced.qp-timeout
}

// RunAgent runs an agent until ctx is done. If it fails, the netdevices that the last process
// has left lose their carrier.
func RunAgent(ctx context.Context, read func() (Agent, error)) error {
	return runWithStore(ctx, func() (endpoint, error) {
		c, err := read()
		return &c, err
	})
}

func (c *Agent) run(ctx context.Context, store *fdStore) (err error) {
	log, err := c.begin()
	if err != nil {
		return err
	}
	if err := (&Sources{Keys: c.Keys}).Check(false); err != nil {
		return err
	}
	c.Messaging.SpinLimit = spin.NewLimit()
	a := newAgent(c, store, log, func(name string) (fabric.Device, uint8, error) {
		adapter := c.Adapter
		adapter.Device = name
		return c.listen(adapter, log)
	})
	defer onHangup(ctx, func() { _, _ = a.reload() })() // an error is logged, and in the status
	state, err := cards.OpenStore(filepath.Join(c.State, "cards"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	defer func() { err = errors.Join(err, a.close()) }()
	if _, err := a.device(""); err != nil {
		return err
	}
	a.noLatency = c.probe(log)
	return a.run(ctx, state)
}

func newAgent(
	c *Agent, store *fdStore, log *slog.Logger, openDevice func(string) (fabric.Device, uint8, error),
) *agent {
	return &agent{
		cfg: c, log: log, store: store, budget: messaging.NewBudget(c.Direct.Memory), since: time.Now(),
		keyDir: filepath.Join(c.State, "keys"), openDevice: openDevice, devices: map[string]sharedDevice{},
		usual: c.Device, there: map[string]*agentCard{}, keys: c.Keys,
	}
}

// run restores the cards, and serves requests until ctx is done.
func (a *agent) run(ctx context.Context, state *cards.Store) (err error) {
	a.set = cards.NewSet(a, state, a.cfg.MaxCards, a.log)
	defer func() {
		a.failing.Store(err != nil)
		err = errors.Join(err, a.set.Close())
	}()
	names := a.set.Restore() // unusable records: the next process may be able to use these cards
	list := a.set.List()
	for _, i := range list {
		names = append(names, i.Spec.Name)
	}
	if err := a.store.tidy(a.log, names...); err != nil {
		return err
	}
	status := func() any { return a.status() }
	reload := statussock.Command{
		Name: CommandReload, Run: func(context.Context) (any, error) { return a.reload() },
	}
	stop, err := a.cfg.serve(cards.AgentSocket, cards.API(a.set), status, a.metrics(), a.log, reload)
	if err != nil {
		return err
	}
	defer stop()
	collecting, done := context.WithCancel(ctx)
	var collector sync.WaitGroup
	collector.Go(func() { a.set.Collect(collecting) })
	defer collector.Wait()
	defer done()
	a.log.Info("agent", "cards", len(list), "state", a.cfg.State, "devices", a.status().Devices, "iounits", a.cfg.IOUnits,
		"version", a.cfg.Version)
	notify("READY=1\nSTATUS=serving cards")
	defer notify(stopping)
	<-ctx.Done()
	return nil
}

// close closes the devices. All cards must be closed before.
func (a *agent) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, d := range a.devices {
		errs = append(errs, d.Device.Close())
	}
	clear(a.devices)
	return errors.Join(errs...)
}

// device returns the RDMA device with a name, and opens it if it is not open yet. The empty
// name means the device of the agent's flags.
func (a *agent) device(name string) (sharedDevice, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name = cmp.Or(name, a.usual)
	if d, open := a.devices[name]; open {
		return d, nil
	}
	opened, timeout, err := a.openDevice(name)
	if err != nil {
		return sharedDevice{}, err
	}
	if name == "" { // the only device of this machine
		name = opened.Name()
		a.usual = name
	}
	a.devices[name] = sharedDevice{opened, timeout}
	return a.devices[name], nil
}

func (a *agent) status() AgentStatus {
	s := AgentStatus{
		Role: "agent", Name: cmp.Or(a.cfg.Name, Hostname()), Software: a.cfg.Version, Since: a.since,
		MaxCards: a.cfg.MaxCards, Cards: a.set.List(),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Devices = slices.Sorted(maps.Keys(a.devices))
	s.Reload = a.reloads
	return s
}

func (a *agent) states() map[cards.State]int {
	n := map[cards.State]int{cards.Connecting: 0, cards.Connected: 0, cards.Failed: 0}
	for _, i := range a.set.List() {
		n[i.Status.State]++
	}
	return n
}

// metrics returns the handler for the metrics of an agent and of its cards.
func (a *agent) metrics() http.Handler {
	return cardHandler(func(emit emit) {
		buildMetrics(emit, a.cfg.Version)
		reloads := a.status().Reload
		reloads.metrics(emit)
		for state, n := range a.states() {
			emit.gauge(descCards, float64(n), string(state))
		}
	}, func() map[string]func(emit) {
		samples := map[string]func(emit){}
		for _, i := range a.set.List() {
			if i.Status.State == cards.Failed { // it has no host, and no session
				samples[i.Spec.Name] = func(emit emit) { emit.gauge(descConnected, 0) }
			}
		}
		for _, c := range a.present() {
			samples[c.name] = c.samples
		}
		return samples
	})
}

// present returns the open cards, sorted by name.
func (a *agent) present() []*agentCard {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Collect(maps.Values(a.there))
	slices.SortFunc(all, func(x, y *agentCard) int { return strings.Compare(x.name, y.name) })
	return all
}

// reload reads the keys again, for all open cards and for later ones.
func (a *agent) reload() (Reloaded, error) {
	a.reloadingNow.Lock()
	defer a.reloadingNow.Unlock()
	defer announceReload(notify)()
	done, err := a.reloadAll()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reloads.add(err)
	if err != nil {
		a.log.Error("reload failed; what it is about stays as it was", "error", err)
	}
	return done, err
}

func (a *agent) reloadAll() (done Reloaded, err error) {
	sources, late, err := a.cfg.Reread()
	if err == nil {
		err = sources.Check(false)
	}
	if err != nil {
		return Reloaded{}, err
	}
	journal.Level.Set(sources.LogLevel)
	a.mu.Lock()
	a.keys = sources.Keys
	a.reads++
	a.mu.Unlock()
	done.Late = late
	var errs []error
	for _, c := range a.present() {
		of, err := c.reloads.reload()
		if err != nil {
			errs = append(errs, fmt.Errorf("card %s: %w", c.name, err))
		}
		done.Ended += of.Ended
		done.Cards = append(done.Cards, c.path)
	}
	return done, errors.Join(errs...)
}
