// Package irq tells which interrupts raise the events of an RDMA device's
// completion vectors, and on which processors, and changes the latter. It reads
// what the kernel shows below /sys and /proc.
package irq

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/internal/cpus"
)

// Vector is a completion vector and its interrupt.
type Vector struct {
	Number int    `json:"comp_vector"`
	IRQ    int    `json:"irq"`
	Name   string `json:"name"` // that the adapter's driver has given the interrupt
	// CPUs are the processors that the interrupt may go to, Effective those that
	// the kernel has chosen of them, where it says so.
	CPUs      cpus.List `json:"processors"`
	Effective cpus.List `json:"effective_processors,omitempty"`
}

// Target are the processors that the interrupt goes to, as exactly as is known.
func (v *Vector) Target() cpus.List {
	if len(v.Effective) > 0 {
		return v.Effective
	}
	return v.CPUs
}

// Tree is where the kernel shows itself: the directory that sys and proc are in.
type Tree string

// Kernel is the running one.
const Kernel Tree = "/"

func (t Tree) path(elements ...string) string {
	return filepath.Join(append([]string{string(t)}, elements...)...)
}

func (t Tree) read(elements ...string) (string, error) {
	b, err := os.ReadFile(t.path(elements...))
	return strings.TrimSpace(string(b)), err
}

// completion is how drivers name the interrupts of completion vectors: mlx5_comp3@pci:…,
// mlx4-3@…, efa-comp3@…, irdma-…-CEQ-3, bnxt_re-nq-3.
var completion = regexp.MustCompile(`(?i)(?:comp|ceq-?|-nq-|^mlx4-)(\d+)(?:@|$)`)

// Vectors are the completion vectors of an RDMA device whose interrupts can be
// told, by number. Soft-RoCE has none: its events come from the kernel's threads.
func (t Tree) Vectors(device string) ([]Vector, error) {
	irqs, err := os.ReadDir(t.path("sys/class/infiniband", device, "device/msi_irqs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("interrupts of %s: %w", device, err)
	}
	var all []Vector
	for _, e := range irqs {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		v, err := t.vector(n)
		if err != nil {
			return nil, fmt.Errorf("interrupt %d of %s: %w", n, device, err)
		}
		if v != nil && !slices.ContainsFunc(all, func(o Vector) bool { return o.Number == v.Number }) {
			all = append(all, *v)
		}
	}
	slices.SortFunc(all, func(a, b Vector) int { return a.Number - b.Number })
	return all, nil
}

// vector is that of an interrupt, nil if it is another kind of interrupt, or
// nobody's.
func (t Tree) vector(irq int) (*Vector, error) {
	dir := strconv.Itoa(irq)
	names, err := t.read("sys/kernel/irq", dir, "actions")
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for name := range strings.SplitSeq(names, ",") {
		m := completion.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		v := &Vector{IRQ: irq, Name: name}
		if v.Number, err = strconv.Atoi(m[1]); err != nil {
			return nil, err
		}
		text, err := t.read("proc/irq", dir, "smp_affinity_list")
		if err != nil {
			return nil, ignoreMissing(err)
		}
		if v.CPUs, err = cpus.Parse(text); err != nil {
			return nil, err
		}
		// Kernels without a chosen processor do not have this one.
		if text, err = t.read("proc/irq", dir, "effective_affinity_list"); err == nil {
			v.Effective, err = cpus.Parse(text)
		}
		return v, ignoreMissing(err)
	}
	return nil, nil
}

// ignoreMissing is err, but for an interrupt that has gone meanwhile.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Set has an interrupt go to these processors.
func (t Tree) Set(irq int, list cpus.List) error {
	f, err := os.OpenFile(t.path("proc/irq", strconv.Itoa(irq), "smp_affinity_list"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(list.String() + "\n")
	return errors.Join(err, f.Close())
}

// Balancer is the process that moves interrupts by its own lights, irqbalance, 0
// if there is none.
func (t Tree) Balancer() int {
	processes, err := os.ReadDir(t.path("proc"))
	if err != nil {
		return 0
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if name, err := t.read("proc", p.Name(), "comm"); err == nil && name == "irqbalance" {
			return pid
		}
	}
	return 0
}
