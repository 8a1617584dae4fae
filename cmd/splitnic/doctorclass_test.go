package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/verbs"
)

// TestDoctorTrafficClass expects one line about the traffic class for a port of RoCE whose sessions
// have none, and none otherwise.
func TestDoctorTrafficClass(t *testing.T) {
	roce := verbs.PortAttr{Port: 2, State: verbs.PortActive, LinkLayer: verbs.LinkEthernet}
	infiniband := roce
	infiniband.LinkLayer = verbs.LinkInfiniBand
	for _, c := range []struct {
		name, driver string
		port         verbs.PortAttr
		command      string
		files        map[string]string
		says         bool
	}{
		{"adapter", "mlx5_core", roce, "", nil, true},
		{"adapter of an unknown driver", "", roce, "", nil, true},
		{"InfiniBand", "mlx5_core", infiniband, "", nil, false},
		{"Soft-RoCE", "rdma_rxe", roce, "", nil, false},
		{"Soft-iWARP", "siw", roce, "", nil, false},
		{"a flag", "mlx5_core", roce, "/usr/bin/splitnic host --traffic-class 0x68", nil, false},
		{"a flag with =", "mlx5_core", roce, "splitnic host --device=dev0 --traffic-class=104 --lan x", nil, false},
		{"a flag of another device", "mlx5_core", roce, "splitnic host --device dev1 --traffic-class 0x68", nil, true},
		{"a flag without value", "mlx5_core", roce, "splitnic host --traffic-class", nil, true},
		{"a flag of another program", "mlx5_core", roce, "ib_write_bw --traffic-class 0x68", nil, true},
		{"a file", "mlx5_core", roce, "", map[string]string{"sn0.yaml": "traffic-class: 0x68\n"}, false},
		{"one of two files", "mlx5_core", roce, "",
			map[string]string{"iounit.yaml": "lan: eth1\n", "sn0.yaml": "device: dev0\ntraffic-class: 104\n"}, false},
		{"a file of another device", "mlx5_core", roce, "",
			map[string]string{"sn0.yaml": "device: dev1\ntraffic-class: 0x68\n"}, true},
		{"a file that sets 0", "mlx5_core", roce, "", map[string]string{"sn0.yaml": "traffic-class: 0\n"}, true},
		{"a file with another setting", "mlx5_core", roce, "",
			map[string]string{"sn0.yaml": "latency-traffic-class: 0xb8\n"}, true},
		{"no configuration", "mlx5_core", roce, "", map[string]string{"sn0.yml": "traffic-class: 0x68\n"}, true},
		{"mistakes", "mlx5_core", roce, "",
			map[string]string{"a.yaml": "[", "b.yaml": "traffic-class: [1, 2]\n", "c.yaml": "traffic-class: x\n"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var r report
			if err := os.Mkdir(filepath.Join(dir, "17"), 0o700); err != nil {
				t.Fatal(err)
			}
			line := strings.ReplaceAll(c.command, " ", "\x00") + "\x00"
			if err := os.WriteFile(filepath.Join(dir, "17", "cmdline"), []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			classPlaces{config: dir, proc: dir}.check(&r, "dev0", c.driver, c.port)
			if !c.says {
				if len(r) != 0 {
					t.Errorf("%+v", r)
				}
				return
			}
			if len(r) != 1 || r[0].Status != "ok" || r[0].Check != "dev0" || r[0].Fix != "" ||
				!strings.Contains(r[0].Found, "--traffic-class") || !strings.Contains(r[0].Found, "port 2") {
				t.Errorf("%+v", r)
			}
			guide, err := os.ReadFile("../../docs/deploy.md")
			if err != nil || !strings.Contains(string(guide), "\n## Loss on the fabric\n") {
				t.Errorf("the guide lacks the section: %v", err)
			}
		})
	}
}
