//go:build pods

package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// podRuntime is a container runtime with the CNI plugin. The methods may be called from any
// goroutine.
type podRuntime interface {
	// run starts a pod with this name.
	run(name string) error
	// remove removes a pod, if it exists.
	remove(name string) error
	// inspect returns the pod's network namespace and address.
	inspect(t testing.TB, name string) (netns, address string)
	// repeats reports whether the runtime repeats a DEL that failed.
	repeats() bool
	// pods returns the names of all pods.
	pods(t testing.TB) []string
}

// podFixture has what every runtime needs: an agent, plugins, and a configuration.
type podFixture struct {
	*managedAgent
	bin     string // directory with the plugin and Debian's plugins
	network string // directory with the network's configuration
	// namespaces has the named network namespaces that existed before.
	namespaces map[string]bool
}

// debianPlugins is the directory in which Debian has CNI plugins.
const debianPlugins = "/usr/lib/cni"

// podNetwork is the name of the network.
const podNetwork = "lan"

func newPodFixture(t testing.TB) *podFixture {
	t.Helper()
	testenv.NeedPods(t, "go", "ping", "podman", "containerd", "ctr", "runc", "tar")
	f := &podFixture{managedAgent: newManagedAgent(t), namespaces: map[string]bool{}}
	for _, ns := range f.newNamespaces(t) {
		f.namespaces[ns] = true
	}
	f.bin, f.network = filepath.Join(f.dir, "bin"), filepath.Join(f.dir, "net.d")
	for _, d := range []string{f.bin, f.network} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.build("github.com/splitnic/splitnic/cmd/splitnic-cni", filepath.Join(f.bin, "splitnic-cni"))
	plugins, err := filepath.Glob(debianPlugins + "/*")
	if err != nil || len(plugins) == 0 {
		testenv.Missing(t, "pods", "there are no CNI plugins in %s (%v)", debianPlugins, err)
	}
	for _, p := range plugins {
		if filepath.Base(p) != "splitnic-cni" {
			if err := os.Symlink(p, filepath.Join(f.bin, filepath.Base(p))); err != nil {
				t.Fatal(err)
			}
		}
	}
	plugin := map[string]any{
		"type": "splitnic-cni", "socket": f.sock, "timeout": "2m",
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(f.dir, "ipam"),
			"ranges": [][]map[string]string{{{"subnet": "10.78.0.0/16", "rangeStart": "10.78.1.1", "gateway": "10.78.0.1"}}},
			"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": podNetwork, "plugins": []any{plugin}})
	if err == nil {
		err = os.WriteFile(filepath.Join(f.network, "10-"+podNetwork+".conflist"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// build compiles a program without cgo, so that it needs no shared libraries.
func (f *podFixture) build(pkg, to string) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), "go", "build", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("%v\n%s", err, out)
	}
}

// killPlugins kills every process of the plugin, and returns how many there were.
func (f *podFixture) killPlugins() (n int) {
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		if to, err := os.Readlink(exe); err != nil || to != filepath.Join(f.bin, "splitnic-cni") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe))); err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
			n++
		}
	}
	return n
}

// command runs a program and returns its output, which is also in the error.
func command(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w\n%s", cmd.Args, err, out)
	}
	return string(out), err
}

// newNamespaces returns the named network namespaces that are newer than the fixture, except
// those of other tests.
func (f *podFixture) newNamespaces(t testing.TB) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(netns.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !f.namespaces[e.Name()] && !strings.HasPrefix(e.Name(), "sntest-") {
			left = append(left, e.Name())
		}
	}
	return left
}
