package lan

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
)

// steering is the rule for a port of cfg's, nil for none.
func (cfg *Config) steering() (*steer.Rule, error) {
	if cfg.Latency == nil {
		return nil, nil
	}
	r := *cfg.Latency
	r.Queues = cfg.Queues
	return &r, r.Check()
}

// steerFanout puts the latency-sensitive frames of the group that socket fd is in into
// its last socket. The group has been made for that: see joinFanout.
func steerFanout(fd int, r *steer.Rule) error {
	p, err := r.Load(steer.Fanout)
	if err != nil {
		return err
	}
	// The group keeps it.
	defer p.Close()
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, p.FD()); err != nil {
		return fmt.Errorf("%w: %w", steer.ErrUnavailable, os.NewSyscallError("setsockopt PACKET_FANOUT_DATA", err))
	}
	return nil
}

// steer does the same for a macvtap. It has no hook for that but puts a frame
// into the queue that its hash names, which a program at the ingress of the
// device can set. It goes with the device.
func (m *macvtap) steer(r *steer.Rule) error {
	p, err := r.Load(steer.Ingress)
	if err != nil {
		return err
	}
	defer p.Close() // the filter keeps it
	if err := m.classify(steerPriority, p.FD()); err != nil {
		return fmt.Errorf("%w: %w", steer.ErrUnavailable, err)
	}
	return nil
}

// discardEarly makes the kernel drop whole datagrams before a queue of a macvtap
// is full. It is called after steer.
func (m *macvtap) discardEarly(cfg Config) error {
	if cfg.NoDiscard {
		return discard.ErrUnwanted
	}
	f, err := discard.New(discard.Config{Hook: discard.Ingress, Queues: len(m.queues), Length: txQueueLen})
	if err != nil {
		return err
	}
	defer f.Close() // as above
	if err := m.classify(discardPriority, f.FD()); err != nil {
		return err
	}
	for i, q := range m.queues {
		q.Count(f.Meter(i))
	}
	return nil
}

// The order of the eBPF programs at the ingress of a macvtap: the second goes by the
// queue that the first has chosen.
const (
	steerPriority uint16 = 1 + iota
	discardPriority
)

// classify has an eBPF program see the frames for a macvtap before it does.
func (m *macvtap) classify(priority uint16, program int) error {
	fail := func(what string, err error) error {
		hint := ""
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			hint = " (the kernel needs the modules sch_ingress and cls_bpf: modprobe -a sch_ingress cls_bpf)"
		}
		return fmt.Errorf("%s of %s: %w%s", what, m.name, err, hint)
	}
	err := m.handle.QdiscAdd(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: m.own, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT},
		QdiscType: "clsact",
	})
	if err != nil && !errors.Is(err, unix.EEXIST) { // for another program
		return fail("adding the clsact qdisc", err)
	}
	err = m.handle.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: m.own, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: program, Name: "splitnic", DirectAction: true,
	})
	if err != nil {
		return fail("adding the filter", err)
	}
	return nil
}
