// Package irq finds the interrupts of an RDMA device's completion vectors, and reads and
// sets their affinity to processors. It uses the files below /sys and /proc.
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
	Name   string `json:"name"` // of the interrupt, given by the adapter's driver
	// CPUs is the affinity of the interrupt. Effective has the processors that the kernel
	// has chosen of it, if the kernel reports them.
	CPUs      cpus.List `json:"processors"`
	Effective cpus.List `json:"effective_processors,omitempty"`
}

// Target returns Effective if the kernel reports it, and CPUs otherwise.
func (v *Vector) Target() cpus.List {
	if len(v.Effective) > 0 {
		return v.Effective
	}
	return v.CPUs
}

// Tree is the directory that contains sys and proc.
type Tree string

// Kernel is the tree of the running kernel.
const Kernel Tree = "/"

func (t Tree) path(elements ...string) string {
	return filepath.Join(append([]string{string(t)}, elements...)...)
}

func (t Tree) read(elements ...string) (string, error) {
	b, err := os.ReadFile(t.path(elements...))
	return strings.TrimSpace(string(b)), err
}

// completion matches the names that drivers give interrupts of completion vectors: mlx5_comp3@pci:…,
// mlx4-3@…, efa-comp3@…, irdma-…-CEQ-3, bnxt_re-nq-3.
var completion = regexp.MustCompile(`(?i)(?:comp|ceq-?|-nq-|^mlx4-)(\d+)(?:@|$)`)

// Vectors returns the completion vectors of an RDMA device whose interrupts are known, by
// number. Soft-RoCE has no interrupts: its events come from kernel threads.
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

// vector returns the completion vector of an interrupt, or nil if the interrupt is of another
// kind or has no handler.
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
		// Kernels that do not report the chosen processors lack this file.
		if text, err = t.read("proc/irq", dir, "effective_affinity_list"); err == nil {
			v.Effective, err = cpus.Parse(text)
		}
		return v, ignoreMissing(err)
	}
	return nil, nil
}

// ignoreMissing returns err, or nil if the interrupt has been removed meanwhile.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Set sets the affinity of an interrupt.
func (t Tree) Set(irq int, list cpus.List) error {
	f, err := os.OpenFile(t.path("proc/irq", strconv.Itoa(irq), "smp_affinity_list"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(list.String() + "\n")
	return errors.Join(err, f.Close())
}

// Balancer returns the process number of irqbalance, which changes the affinity of
// interrupts, or 0 if it does not run.
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
