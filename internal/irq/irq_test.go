package irq

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/cpus"
)

// machine makes a tree with these files, which stand for those of sysfs and procfs.
func machine(t *testing.T, files map[string]string) Tree {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Tree(root)
}

// adapter returns the files of an adapter with three completion vectors, whose interrupts are in
// another order, and one interrupt for commands.
func adapter() map[string]string {
	files := map[string]string{
		"proc/irq/44/smp_affinity_list": "0-7\n",
		"proc/irq/45/smp_affinity_list": "0-7\n", "proc/irq/45/effective_affinity_list": "3\n",
		"proc/irq/46/smp_affinity_list": "2,4\n", "proc/irq/46/effective_affinity_list": "\n",
		"proc/irq/47/smp_affinity_list": "5\n",
		"sys/kernel/irq/9/actions":      "mlx5_comp7@pci:0000:05:00.0\n", // belongs to another adapter
		"proc/1/comm":                   "systemd\n", "proc/self/comm": "irqbalance\n",
	}
	for irq, name := range map[string]string{
		"44": "mlx5_async0@pci:0000:04:00.0", "45": "mlx5_comp1@pci:0000:04:00.0", "46": "mlx5_comp0@pci:0000:04:00.0",
		"47": "mlx5_comp2@pci:0000:04:00.0", "48": "",
	} {
		files["sys/class/infiniband/mlx5_0/device/msi_irqs/"+irq] = "msix\n"
		files["sys/kernel/irq/"+irq+"/actions"] = name + "\n"
	}
	return files
}

func TestVectors(t *testing.T) {
	tree := machine(t, adapter())
	got, err := tree.Vectors("mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	want := []Vector{
		{0, 46, "mlx5_comp0@pci:0000:04:00.0", cpus.List{2, 4}, nil},
		{1, 45, "mlx5_comp1@pci:0000:04:00.0", cpus.List{0, 1, 2, 3, 4, 5, 6, 7}, cpus.List{3}},
		{2, 47, "mlx5_comp2@pci:0000:04:00.0", cpus.List{5}, nil},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i, target := range []string{"2,4", "3", "5"} {
		if s := got[i].Target().String(); s != target {
			t.Errorf("vector %d goes to %s, want %s", i, s, target)
		}
	}
	for _, none := range []string{"rxe0", "mlx5_1"} {
		if got, err := tree.Vectors(none); len(got) != 0 || err != nil {
			t.Errorf("%s: %+v, %v", none, got, err)
		}
	}
}

// TestVectorNames finds the number of a completion vector in the name of its interrupt. Each
// driver has its own names.
func TestVectorNames(t *testing.T) {
	for name, number := range map[string]int{
		"mlx5_comp12@pci:0000:04:00.1": 12, "mlx4-3@0000:01:00.0": 3, "efa-comp2@pci:0000:00:06.0": 2,
		"irdma-ens1f0-CEQ-5": 5, "irdma-CEQ-5": 5, "bnxt_re-nq-1@pci:0000:3b:00.0": 1, "bnxt_re-nq-0": 0,
		"mlx5_async0@pci:0000:04:00.0": -1, "mlx4-async@pci:0000:01:00.0": -1, "irdma-AEQ": -1, "nvme0q1": -1,
		"eth0-TxRx-0": -1, "": -1, "mlx5_compute": -1,
	} {
		tree := machine(t, map[string]string{
			"sys/class/infiniband/d/device/msi_irqs/7": "msix\n", "sys/kernel/irq/7/actions": name + "\n",
			"proc/irq/7/smp_affinity_list": "1\n",
		})
		got, err := tree.Vectors("d")
		if err != nil || (number < 0) != (len(got) == 0) || number >= 0 && got[0].Number != number {
			t.Errorf("%q: %+v, %v, want number %d", name, got, err, number)
		}
	}
}

// TestVectorsBroken expects an error for a file that cannot be parsed. Interrupts whose files do
// not exist any more are left out.
func TestVectorsBroken(t *testing.T) {
	files := adapter()
	files["proc/irq/45/smp_affinity_list"] = "ff\n"
	got, err := machine(t, files).Vectors("mlx5_0")
	if err == nil || !strings.Contains(err.Error(), "interrupt 45 of mlx5_0") {
		t.Errorf("%+v, %v", got, err)
	}
	files = adapter()
	delete(files, "proc/irq/45/smp_affinity_list")
	delete(files, "sys/kernel/irq/46/actions")
	if got, err := machine(t, files).Vectors("mlx5_0"); err != nil || len(got) != 1 || got[0].IRQ != 47 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSet(t *testing.T) {
	tree := machine(t, adapter())
	if err := tree.Set(45, cpus.List{1, 2, 3, 6}); err != nil {
		t.Fatal(err)
	}
	got, err := tree.Vectors("mlx5_0")
	if err != nil || got[1].CPUs.String() != "1-3,6" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := tree.Set(99, cpus.List{1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an interrupt that is not there: %v", err)
	}
}

func TestBalancer(t *testing.T) {
	files := adapter()
	if pid := machine(t, files).Balancer(); pid != 0 {
		t.Errorf("process %d is taken for irqbalance", pid)
	}
	files["proc/812/comm"] = "irqbalance\n"
	if pid := machine(t, files).Balancer(); pid != 812 {
		t.Errorf("irqbalance is process 812, not %d", pid)
	}
}

// TestKernel reads the files of the running kernel, whatever they have.
func TestKernel(t *testing.T) {
	got, err := Kernel.Vectors("no-such-device")
	if err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	Kernel.Balancer()
}
