package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// IRQAffinity says how handlers and the interrupts of their completion vectors
// come onto the same processors.
type IRQAffinity string

// The ways.
const (
	IRQOff    IRQAffinity = "off"    // they do not
	IRQFollow IRQAffinity = "follow" // handlers without processors are given those of their interrupt
	IRQSet    IRQAffinity = "set"    // interrupts are given those of their handlers
)

// Interrupts is what the status says of the interrupts of a device.
type Interrupts struct {
	Vectors []irq.Vector `json:"vectors,omitempty"`
	// Balancer is the process that may move them, irqbalance.
	Balancer int    `json:"irqbalance,omitempty"`
	Error    string `json:"error,omitempty"`
}

func interruptsOf(t irq.Tree, device string) Interrupts {
	var s Interrupts
	var err error
	if s.Vectors, err = t.Vectors(device); err != nil {
		s.Error = err.Error()
	}
	if len(s.Vectors) > 0 {
		s.Balancer = t.Balancer()
	}
	return s
}

// join brings handlers and the interrupts of a device with so many completion
// vectors together, as wanted, when a process starts.
func (a IRQAffinity) join(t irq.Tree, device string, vectors int, all []messaging.Handler, log *slog.Logger) error {
	if a == IRQOff || a == "" {
		return nil
	}
	found, err := t.Vectors(device)
	switch {
	case err != nil:
		return fmt.Errorf("--irq-affinity: %w", err)
	case len(found) == 0:
		return exit.With(exit.Missing, fmt.Errorf("--irq-affinity: %s has no interrupts with known names "+
			"(Soft-RoCE has none); omit the flag", device))
	}
	if pid := t.Balancer(); pid != 0 {
		log.Warn("irqbalance may move the interrupts again: have it leave them alone (--banirq), or stop it",
			"process", pid)
	}
	for i := range found {
		v := &found[i]
		if a == IRQFollow {
			followInterrupt(v, vectors, all)
		} else if err := setInterrupt(t, v, vectors, all); err != nil {
			return err
		}
	}
	return nil
}

// followInterrupt gives the handlers of data that have a vector, and no processors,
// those of its interrupt, as far as this process may use them.
func followInterrupt(v *irq.Vector, vectors int, all []messaging.Handler) {
	list := v.Target()
	list = list.Without(list.Without(cpus.Allowed()))
	for i := range all {
		if h := &all[i]; h.Number != messaging.ControlHandler && h.Number%max(vectors, 1) == v.Number && len(h.CPUs) == 0 {
			h.CPUs = slices.Clone(list)
		}
	}
}

// setInterrupt gives a vector's interrupt the processors of the handlers that have
// it. Handlers that may run anywhere have no say in it.
func setInterrupt(t irq.Tree, v *irq.Vector, vectors int, all []messaging.Handler) error {
	var list cpus.List
	for i := range all {
		if h := &all[i]; h.Number%max(vectors, 1) == v.Number {
			list = append(list, h.CPUs...)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if err := t.Set(v.IRQ, list); err != nil {
		return notSet(v, list, err)
	}
	return nil
}

// notSet is the error about an interrupt that stays where it is.
func notSet(v *irq.Vector, list cpus.List, err error) error {
	err = fmt.Errorf("--irq-affinity: interrupt %d (%s) to processors %v: %w; it takes root, a /proc/irq that may be "+
		"written (ProtectKernelTunables=no), and a driver that lets go of it", v.IRQ, v.Name, list, err)
	if errors.Is(err, fs.ErrPermission) {
		return exit.With(exit.Permission, err)
	}
	return err
}
