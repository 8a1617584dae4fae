package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

// Open implements cards.Maker.
func (a *agent) Open(spec *cards.Spec) (cards.Card, error) {
	c, in, err := a.plan(spec)
	if err != nil {
		return nil, err
	}
	security, reads, err := a.identify(c, spec)
	if err != nil {
		return nil, err
	}
	reread := func() (Sources, []string, error) {
		s, late, err := a.cfg.Reread()
		a.own(&s.Keys, spec)
		return s, late, err
	}
	reloads := newReloader(reread, c.ConfigFile, security, nil, in.log)
	reloads.tell = func(string) {} // systemd is told of the agent's reloads, not of a card's
	d, err := c.openCard(spec.Name, in, reloads)
	if err != nil {
		return nil, a.blame(spec, err)
	}
	x := &agentCard{
		card: d, path: c.StatusSocket, closed: func() { a.leave(spec.Name) }, failing: a.failing.Load,
	}
	x.socket, err = statussock.Serve(x.path, func() any { return d.status() }, d.commands()...)
	if err != nil {
		return nil, errors.Join(err, d.remove())
	}
	MoreProcs(d.busy())
	in.log.Info("card", "netdevice", d.netdev.Name(), "netns", spec.NetNS, "adopted", d.netdev.history.Adopted,
		"device", c.Device, "key", security.Fingerprint(), "iounits", c.IOUnits)
	if a.enter(x) != reads {
		_, _ = reloads.reload() // a reload has missed this card; an error is logged, and in the card's status
	}
	return x, nil
}

// enter adds a card to the open ones, which reloads include. It returns the number of reloads
// so far.
func (a *agent) enter(x *agentCard) (reads uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there[x.name] = x
	return a.reads
}

func (a *agent) leave(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.there, name)
}

// plan returns the configuration of a card, and what the agent provides for it.
func (a *agent) plan(spec *cards.Spec) (*Host, surroundings, error) {
	fail := func(field, format string, args ...any) (*Host, surroundings, error) {
		return nil, surroundings{}, &cards.FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	c := a.cfg.Host
	c.Netdevice, c.NetNS, c.Metrics = spec.Netdevice, spec.NetNS, ""
	c.Name = cmp.Or(spec.HostName, Hostname()+"."+spec.Name)
	if !session.ValidName(c.Name) {
		return fail("host_name", "%q is not possible: must be 1 to 253 letters, digits, '.', '_' or '-'", c.Name)
	}
	if spec.MAC != "" {
		c.MAC, _ = protocol.ParseMAC(spec.MAC) // valid: Spec.Complete has checked it
	}
	c.MaxMTU, c.Queues = cmp.Or(spec.MTU, c.MaxMTU), cmp.Or(spec.Queues, c.Queues)
	c.Encrypt = cmp.Or(seal.Wish(spec.Encrypt), c.Encrypt)
	if most := cq.MaxQueues - extra(c.Latency); c.Queues > most {
		return fail("queues", "%d: must be 1 to %d: the agent has --latency-queue", c.Queues, most)
	}
	if len(spec.IOUnits) > 0 {
		c.IOUnits = spec.IOUnits
	}
	if len(c.IOUnits) == 0 {
		return fail("iounits", "there are none: name them here, or with --iounit of the agent")
	}
	if !discovery.Several(c.IOUnits) {
		c.Standby = false
	}
	shared, err := a.device(spec.Device)
	if err != nil {
		return fail("device", "%v", err)
	}
	c.Device, c.Messaging.Timing.Timeout = shared.Device.Name(), shared.timeout
	c.StatusSocket = a.socketOf(spec)
	return &c, surroundings{
		device: shared.Device, store: a.store, budget: a.budget, noLatency: a.noLatency, log: a.log.With("card", spec.Name),
		onState: func(host.State) {}, persevere: true,
	}, nil
}

// socketOf returns the path of a card's status socket, beside the agent's.
func (a *agent) socketOf(spec *cards.Spec) string {
	agents := cmp.Or(a.cfg.StatusSocket, statussock.Path(cards.AgentSocket))
	return filepath.Join(filepath.Dir(agents), "host-"+spec.Name+".sock")
}

// identify loads the card's keys. reads is the number of reloads before that. Each card has its
// own session.Security, even if several cards have the same key: peers distinguish cards by it.
func (a *agent) identify(c *Host, spec *cards.Spec) (security *session.Security, reads uint64, err error) {
	for field, is := range map[string]bool{"key": spec.Key != "", "new_key": spec.NewKey} {
		if is && c.Keys.Insecure {
			return nil, 0, &cards.FieldError{Field: field, Problem: "the agent is --insecure, without keys"}
		}
	}
	if spec.NewKey {
		if err := a.newKey(spec.Name); err != nil {
			return nil, 0, &cards.FieldError{Field: "new_key", Problem: err.Error()}
		}
	}
	a.mu.Lock()
	c.Keys, reads = a.keys, a.reads
	a.mu.Unlock()
	a.own(&c.Keys, spec)
	security, err = c.Keys.load()
	if err != nil && spec.Key != "" {
		err = &cards.FieldError{Field: "key", Problem: err.Error()}
	}
	return security, reads, err
}

// own replaces the agent's key and certificate by the card's, if the card has its own.
func (a *agent) own(k *Keys, spec *cards.Spec) {
	switch {
	case spec.NewKey:
		k.Key, k.Cert = a.keyPath(spec.Name), ""
	case spec.Key != "":
		k.Key, k.Cert = spec.Key, spec.Cert
	}
}

func (a *agent) keyPath(name string) string { return filepath.Join(a.keyDir, name+".pem") }

// newKey makes a key for a card, unless there is one from an earlier call.
func (a *agent) newKey(name string) error {
	if err := os.MkdirAll(a.keyDir, 0o700); err != nil {
		return err
	}
	key, err := session.GenerateKey()
	if err == nil {
		err = session.SaveKey(a.keyPath(name), key)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// blame turns an error about the netdevice or the network namespace into a FieldError. It
// returns other errors unchanged.
func (a *agent) blame(spec *cards.Spec, err error) error {
	if errors.Is(err, tap.ErrExists) {
		for _, c := range a.present() {
			if c.netdev.Name() == spec.Netdevice && sameNetNS(c.cfg.NetNS, spec.NetNS) {
				err = fmt.Errorf("%s is that of card %s; choose another name, or delete that card", spec.Netdevice, c.name)
			}
		}
		return &cards.FieldError{Field: "netdevice", Problem: err.Error()}
	}
	if _, statErr := os.Stat(spec.NetNS); spec.NetNS != "" && statErr != nil {
		return &cards.FieldError{Field: "netns", Problem: err.Error()}
	}
	return err
}

// sameNetNS reports whether two paths, empty for the agent's, are of the same network namespace.
func sameNetNS(a, b string) bool {
	const own = "/proc/self/ns/net"
	x, err := os.Stat(cmp.Or(a, own))
	y, otherErr := os.Stat(cmp.Or(b, own))
	return err == nil && otherErr == nil && os.SameFile(x, y)
}

// Forget implements cards.Maker.
func (a *agent) Forget(spec *cards.Spec) error {
	err := errors.Join(a.store.forget(spec.Name), statussock.Discard(a.socketOf(spec)))
	if !spec.NewKey {
		return err
	}
	removed := os.Remove(a.keyPath(spec.Name))
	if errors.Is(removed, fs.ErrNotExist) {
		removed = nil
	}
	return errors.Join(err, removed)
}
