package daemon

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/splitnic/splitnic/internal/testenv"
)

// given runs ADD for a container, pings the addresses lan, runs CHECK and DEL, and returns the
// result of ADD.
func (r *cniRuntime) given(list *libcni.NetworkConfigList, pod *libcni.RuntimeConf, lan ...string) *current.Result {
	r.t.Helper()
	result := r.add(list, pod)
	for _, ip := range lan {
		testenv.Run(r.t, filepath.Base(pod.NetNS), "ping", "-c", "1", "-W", "10", ip)
	}
	if err := r.libs.CheckNetworkList(r.t.Context(), list, pod); err != nil {
		r.t.Error(err)
	}
	if err := r.libs.DelNetworkList(r.t.Context(), list, pod); err != nil {
		r.t.Error(err)
	}
	r.nothingLeft(list.Name, pod)
	return result
}

// TestNetnsCNIDualStack gives a container an IPv4 and an IPv6 address, which must be usable as
// soon as ADD has returned.
func TestNetnsCNIDualStack(t *testing.T) {
	r := newCNI(t)
	testenv.Address(t, r.lan, "br0", "fd00:78::1/64")
	list := r.network("pods", podAddresses, map[string]any{"ipam": map[string]any{
		"type": "host-local", "dataDir": filepath.Join(r.dir, "ipam"),
		"ranges": [][]map[string]string{
			{{"subnet": "10.78.0.0/16", "rangeStart": "10.78.1.1", "gateway": "10.78.0.1"}},
			{{"subnet": "fd00:78::/64", "rangeStart": "fd00:78::100", "gateway": "fd00:78::1"}},
		},
		"routes": []map[string]string{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
	}})
	result := r.given(list, r.pod("c1"), "10.78.0.1", "fd00:78::1")
	if len(result.IPs) != 2 || !strings.HasPrefix(result.IPs[1].Address.String(), "fd00:78::10") {
		t.Errorf("%+v", result.IPs)
	}
}

// TestNetnsCNIStatic gives a container the address that the runtime requests with the
// capability ips.
func TestNetnsCNIStatic(t *testing.T) {
	r := newCNI(t)
	list := r.network("pods", podAddresses, map[string]any{
		"capabilities": map[string]bool{"ips": true}, "ipam": map[string]any{"type": "static"},
	})
	pod := r.pod("c1")
	pod.CapabilityArgs = map[string]any{"ips": []string{"10.78.6.6/16"}}
	result := r.given(list, pod, "10.78.0.1")
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.78.6.6/16" {
		t.Errorf("%+v", result.IPs)
	}
}

// TestNetnsCNIDHCP gives a container an address from a DHCP server on the LAN of the I/O unit,
// with the daemon of the plugin dhcp.
func TestNetnsCNIDHCP(t *testing.T) {
	testenv.NeedTools(t, "dnsmasq")
	r := newCNI(t)
	server := testenv.Command(t, r.lan, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0",
		"--user=root", "--interface=br0", "--bind-interfaces", "--dhcp-range=10.78.7.7,10.78.7.7,255.255.0.0,1h",
		"--pid-file", "--dhcp-option=option:router,10.78.0.1", "--dhcp-leasefile="+filepath.Join(r.dir, "leases"))
	sock := filepath.Join(r.dir, "dhcp.sock")
	for _, cmd := range []*exec.Cmd{
		server, exec.CommandContext(t.Context(), filepath.Join(r.bin, "dhcp"), "daemon", "-socketpath", sock),
	} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // the process may have ended
			_ = cmd.Wait()
		})
	}
	testenv.Eventually(t, func() bool {
		c, err := net.Dial("unix", sock)
		if err != nil {
			return false
		}
		c.Close()
		return true
	}, "the daemon of the plugin dhcp")
	list := r.network("pods", podAddresses, map[string]any{
		"ipam": map[string]any{"type": "dhcp", "daemonSocketPath": sock},
	})
	result := r.given(list, r.pod("c1"), "10.78.0.1")
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.78.7.7/16" ||
		result.IPs[0].Gateway.String() != "10.78.0.1" {
		t.Errorf("%+v", result.IPs)
	}
}
