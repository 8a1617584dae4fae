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
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// IRQAffinity selects how handlers and the interrupts of their completion vectors get onto the
// same processors.
type IRQAffinity string

// The values of IRQAffinity.
const (
	IRQOff    IRQAffinity = "off"    // nothing is changed
	IRQFollow IRQAffinity = "follow" // handlers without processors get those of their interrupt
	IRQSet    IRQAffinity = "set"    // interrupts get the processors of their handlers
)

// Interrupts is the part of a status about the interrupts of a device.
type Interrupts struct {
	Vectors []irq.Vector `json:"vectors,omitempty"`
	// Balancer is the process ID of irqbalance, which may move the interrupts.
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

// join applies a, when a process starts, to its handlers and to the interrupts of a device with
// that many completion vectors.
func (a IRQAffinity) join(t irq.Tree, device string, vectors int, all []cq.Handler, log *slog.Logger) error {
	if a == IRQOff || a == "" {
		return nil
	}
	found, err := t.Vectors(device)
	switch {
	case err != nil:
		return fmt.Errorf("advanced.irq-affinity: %w", err)
	case len(found) == 0:
		return exit.With(exit.Missing, fmt.Errorf("advanced.irq-affinity: %s has no interrupts with known names "+
			"(Soft-RoCE has none); omit it", device))
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

// followInterrupt sets the processors of the data handlers that use vector v and have none. They
// get the processors of its interrupt that this process may use.
func followInterrupt(v *irq.Vector, vectors int, all []cq.Handler) {
	list := v.Target()
	list = list.Without(list.Without(cpus.Allowed()))
	for i := range all {
		if h := &all[i]; h.Number != cq.ControlHandler && h.Number%max(vectors, 1) == v.Number && len(h.CPUs) == 0 {
			h.CPUs = slices.Clone(list)
		}
	}
}

// setInterrupt moves the interrupt of vector v to the processors of the handlers that use v. It
// ignores handlers that may run on any processor.
func setInterrupt(t irq.Tree, v *irq.Vector, vectors int, all []cq.Handler) error {
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

// notSet returns the error for an interrupt that could not be moved.
func notSet(v *irq.Vector, list cpus.List, err error) error {
	err = fmt.Errorf("advanced.irq-affinity: interrupt %d (%s) to processors %v: %w; it takes root, a /proc/irq that may "+
		"be written (ProtectKernelTunables=no), and a driver that lets go of it", v.IRQ, v.Name, list, err)
	if errors.Is(err, fs.ErrPermission) {
		return exit.With(exit.Permission, err)
	}
	return err
}
