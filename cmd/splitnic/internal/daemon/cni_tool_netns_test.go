package daemon

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/splitnic/splitnic/internal/testenv"
)

// cniTool is cnitool, the program of the CNI project that runs plugins by hand, with its files
// in a directory of the test.
type cniTool struct {
	*cniRuntime
	networks string // NETCONFPATH
}

func newCNITool(t *testing.T) *cniTool {
	t.Helper()
	testenv.NeedTools(t, "unshare", "mount")
	tool := &cniTool{cniRuntime: newCNI(t)}
	tool.networks = filepath.Join(tool.dir, "net.d")
	if err := os.MkdirAll(filepath.Join(tool.dir, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	return tool
}

// configure makes the configuration file of a network, as an administrator does.
func (c *cniTool) configure(list *libcni.NetworkConfigList) {
	c.t.Helper()
	err := os.MkdirAll(c.networks, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.networks, "10-"+list.Name+".conflist"), list.Bytes, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// do runs cnitool. cnitool records attachments in /var/lib/cni, which is a directory of the test
// here.
func (c *cniTool) do(command, network, ns string) (stdout, stderr string, err error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /var/lib && exec "$@"`, filepath.Join(c.dir, "lib"),
		filepath.Join(c.bin, "cnitool"), command, network, ns)
	cmd.Env = append(os.Environ(), "CNI_PATH="+c.bin, "NETCONFPATH="+c.networks)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must runs cnitool, which has to succeed.
func (c *cniTool) must(command, network, ns string) (stdout string) {
	c.t.Helper()
	out, errs, err := c.do(command, network, ns)
	if err != nil {
		c.t.Fatalf("cnitool %s: %v\n%s%s", command, err, out, errs)
	}
	return out
}

// TestNetnsCNITool runs the commands that docs/cni.md tells a user to type.
func TestNetnsCNITool(t *testing.T) {
	tool := newCNITool(t)
	tool.configure(tool.network("lan", podAddresses, nil))
	pod := tool.pod("hand")
	tool.must("status", "lan", pod.NetNS)
	var result current.Result
	if err := json.Unmarshal([]byte(tool.must("add", "lan", pod.NetNS)), &result); err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.78.1.1/16" || len(result.Interfaces) != 1 ||
		result.Interfaces[0].Sandbox != pod.NetNS {
		t.Errorf("%+v", result)
	}
	tool.reaches(pod)
	tool.must("check", "lan", pod.NetNS)
	if _, errs, err := tool.do("add", "lan", pod.NetNS); err == nil || !strings.Contains(errs, "is attached already") {
		t.Errorf("ADD again: %v, %q", err, errs)
	}
	testenv.Run(t, filepath.Base(pod.NetNS), "ip", "addr", "flush", "dev", "eth0")
	if _, errs, err := tool.do("check", "lan", pod.NetNS); err == nil || !strings.Contains(errs, "10.78.1.1") {
		t.Errorf("CHECK without the address: %v, %q", err, errs)
	}
	for range 2 {
		tool.must("del", "lan", pod.NetNS)
		tool.nothingLeft("lan", pod)
	}
	// cnitool has no list of valid attachments for GC: it removes all that it has made, and the
	// plugin does not accept the missing list as an empty one.
	other := tool.network("other", addresses{"10.78.2.1", "10.78.2.9"}, nil)
	kept := tool.pod("other")
	tool.add(other, kept)
	tool.must("add", "lan", pod.NetNS)
	if _, errs, err := tool.do("gc", "lan", pod.NetNS); err == nil ||
		!strings.Contains(errs, "cni.dev/valid-attachments: is missing") {
		t.Errorf("GC: %v, %q", err, errs)
	}
	if owners := tool.owners(); len(owners) != 1 || !strings.HasPrefix(owners[0], "cni/other/") {
		t.Errorf("there are cards of %q", owners)
	}
	if err := tool.libs.DelNetworkList(t.Context(), other, kept); err != nil {
		t.Error(err)
	}
	tool.nothingLeft("lan", pod, kept)
	// No agent answers.
	tool.stop()
	if _, errs, err := tool.do("status", "lan", pod.NetNS); err == nil || !strings.Contains(errs, "start splitnic agent") {
		t.Errorf("STATUS without an agent: %v, %q", err, errs)
	}
}
