//go:build pods

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// podman is a Podman with its own store. A pod is a container.
type podman struct {
	*podFixture
	flags []string
}

// podImage is the name of the image of all containers.
const podImage = "localhost/splitnic-test:1"

// podmanConfig has the settings for which there are no flags: resource limits that need no
// privilege, the plugins, and lock files, which do not affect another Podman on the machine.
const podmanConfig = `
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
lock_type = "file"
[network]
network_backend = "cni"
cni_plugin_dirs = [%q]
`

func newPodman(f *podFixture) *podman {
	f.t.Helper()
	dir := filepath.Join(f.dir, "podman")
	if err := os.Mkdir(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	p := &podman{podFixture: f, flags: []string{
		"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp"),
		"--storage-driver", "vfs", "--network-config-dir", f.network, "--runtime", "runc", "--cgroup-manager", "cgroupfs",
		"--events-backend", "none",
	}}
	program := filepath.Join(dir, "container")
	f.build("./testdata/container", program)
	err := os.WriteFile(filepath.Join(dir, "containers.conf"), fmt.Appendf(nil, podmanConfig, f.bin), 0o600)
	if err == nil {
		_, err = command(exec.CommandContext(f.t.Context(), "tar", "-C", dir, "-cf", program+".tar", "container"))
	}
	if err == nil {
		_, err = p.podman("import", "--change", `ENTRYPOINT ["/container"]`, program+".tar", podImage)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if _, err := p.podman("rm", "--all", "--force", "--time", "0"); err != nil {
			f.t.Error(err)
		}
	})
	return p
}

// podman runs a command of Podman.
func (p *podman) podman(args ...string) (string, error) {
	cmd := exec.Command("podman", append(append([]string{}, p.flags...), args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(p.dir, "podman/containers.conf"))
	return command(cmd)
}

func (p *podman) run(name string) error {
	_, err := p.podman("run", "--detach", "--name", name, "--network", podNetwork, podImage)
	return err
}

func (p *podman) remove(name string) error {
	_, err := p.podman("rm", "--force", "--ignore", "--time", "0", name)
	return err
}

func (p *podman) inspect(t testing.TB, name string) (ns, address string) {
	t.Helper()
	out, err := p.podman("inspect", name)
	var all []struct {
		State           struct{ Pid int }
		NetworkSettings struct {
			Networks map[string]struct{ IPAddress string }
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	if err == nil && len(all) != 1 {
		err = errors.New("there are " + out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/ns/net", all[0].State.Pid), all[0].NetworkSettings.Networks[podNetwork].IPAddress
}

func (p *podman) pods(t testing.TB) []string {
	t.Helper()
	out, err := p.podman("ps", "--all", "--format", "{{.Names}}")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)
}

// repeats returns false: Podman forgets a container even if its plugin was killed. host-local
// then keeps the address.
func (p *podman) repeats() bool { return false }
