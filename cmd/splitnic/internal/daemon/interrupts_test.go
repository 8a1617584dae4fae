package daemon

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// machine makes the sysfs and procfs tree of a machine with an adapter, mlx5_0. The adapter has
// two completion vectors, whose interrupts 45 and 46 may go to these processors.
func machine(t *testing.T, cpus0, cpus1 string) irq.Tree {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"sys/class/infiniband/mlx5_0/device/msi_irqs/45": "msix", "sys/kernel/irq/45/actions": "mlx5_comp0@pci:0000:04:00.0",
		"sys/class/infiniband/mlx5_0/device/msi_irqs/46": "msix", "sys/kernel/irq/46/actions": "mlx5_comp1@pci:0000:04:00.0",
		"proc/irq/45/smp_affinity_list": cpus0, "proc/irq/46/smp_affinity_list": cpus1,
	} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return irq.Tree(root)
}

// targets returns the processors of both interrupts.
func targets(t *testing.T, tree irq.Tree) string {
	t.Helper()
	s := interruptsOf(tree, "mlx5_0")
	if s.Error != "" || len(s.Vectors) != 2 {
		t.Fatalf("%+v", s)
	}
	return s.Vectors[0].CPUs.String() + " " + s.Vectors[1].CPUs.String()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// handlersOf returns handlers 0, 1, … with these processors. The number of a handler selects its
// completion vector and so its interrupt. Handler 0 is that of the control channel.
func handlersOf(lists ...cpus.List) []cq.Handler {
	var all []cq.Handler
	for i, l := range lists {
		all = append(all, cq.Handler{Number: i, CPUs: l})
	}
	return all
}

func TestIRQFollow(t *testing.T) {
	mine := cpus.Allowed()
	first := mine[:1].String()
	tree := machine(t, first+",1000", "1001") // this process may not run on 1000 and 1001
	all := handlersOf(nil, nil, nil, mine)
	if err := IRQFollow.join(tree, "mlx5_0", 2, all, quiet()); err != nil {
		t.Fatal(err)
	}
	// Handler 1 has vector 1, 2 has vector 0, 3 has vector 1 and configured processors.
	for i, want := range []string{"", "", first, mine.String()} {
		if got := all[i].CPUs.String(); got != want {
			t.Errorf("handler %d is on %q, want %q", i, got, want)
		}
	}
	if got := targets(t, tree); got != first+",1000 1001" {
		t.Errorf("interrupts were moved to %s", got)
	}
}

func TestIRQSet(t *testing.T) {
	tree := machine(t, "0-7", "0-7")
	all := handlersOf(nil, cpus.List{3}, nil, cpus.List{1, 2})
	if err := IRQSet.join(tree, "mlx5_0", 2, all, quiet()); err != nil {
		t.Fatal(err)
	}
	if got := targets(t, tree); got != "0-7 1-3" {
		t.Errorf("the interrupts go to %s, want those of handlers 1 and 3 for vector 1 alone", got)
	}
	for i, want := range []string{"", "3", "", "1-2"} {
		if got := all[i].CPUs.String(); got != want {
			t.Errorf("handler %d is on %q, want %q", i, got, want)
		}
	}
}

func TestIRQOff(t *testing.T) {
	tree := machine(t, "0-7", "0-7")
	all := handlersOf(nil, cpus.List{3}, nil)
	for _, a := range []IRQAffinity{"", IRQOff} {
		if err := a.join(tree, "no-device", 2, all, quiet()); err != nil {
			t.Error(err)
		}
		if err := a.join(tree, "mlx5_0", 2, all, quiet()); err != nil || targets(t, tree) != "0-7 0-7" || all[2].CPUs != nil {
			t.Errorf("%q: %v, %s, %v", a, err, targets(t, tree), all)
		}
	}
}

// TestTroubleOfInterrupts expects the errors about interrupts to be documented.
func TestTroubleOfInterrupts(t *testing.T) {
	tree := machine(t, "0-7", "0-7")
	v := irq.Vector{IRQ: 46, Name: "mlx5_comp1@pci:0000:04:00.0"}
	for name, tc := range map[string]struct {
		err    error
		status int
	}{
		"none": {IRQSet.join(tree, "rxe0", 2, handlersOf(nil, cpus.List{3}), quiet()), exit.Missing},
		"not permitted": {notSet(&v, cpus.List{3}, &fs.PathError{Op: "open", Path: "/proc/irq/46/smp_affinity_list",
			Err: unix.EACCES}), exit.Permission},
		"the driver's": {notSet(&v, cpus.List{3}, &fs.PathError{Op: "write", Path: "/proc/irq/46/smp_affinity_list",
			Err: unix.EIO}), exit.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			if exit.Status(tc.err) != tc.status {
				t.Fatalf("%v, want status %d", tc.err, tc.status)
			}
			testenv.Ended(t, exit.Status(tc.err), tc.err.Error())
		})
	}
}
