package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// cniPods is a container runtime with one container, and an agent whose I/O unit allows VLAN 10.
type cniPods struct {
	*fixture
	agent   *agentProcess
	plugins *libcni.CNIConfig
	ns      string // network namespace of the container
	pod     *libcni.RuntimeConf
}

func newCNIPods(t *testing.T) *cniPods {
	t.Helper()
	policy := write(t, t.TempDir(), "policy.yaml", "default: {vlans: [10]}")
	p := &cniPods{fixture: newFixture(t, "macvtap", "--advanced.handshake-timeout", patience.String(), "--policy", policy)}
	p.agent = p.newAgent(t)
	bin := filepath.Dir(p.agent.bin)
	if _, err := os.Stat(filepath.Join(bin, "splitnic-cni")); err != nil {
		testenv.Missing(t, "splitnic", "the CNI plugin is missing beside splitnic: %v; make build", err)
	}
	p.plugins = libcni.NewCNIConfigWithCacheDir([]string{bin}, t.TempDir(), nil)
	p.ns = testenv.NetNS(t)
	p.pod = &libcni.RuntimeConf{ContainerID: "0123456789abcdef", NetNS: netns.Path(p.ns), IfName: "eth0"}
	return p
}

// network returns a network configuration without an IPAM plugin. vlan is 0 for none.
func (p *cniPods) network(vlan int) *libcni.NetworkConfigList {
	p.t.Helper()
	return p.patient(vlan, patience)
}

// patient returns the configuration of network with another timeout of the plugin.
func (p *cniPods) patient(vlan int, timeout time.Duration) *libcni.NetworkConfigList {
	p.t.Helper()
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "lan", "plugins": [
		{"type": "splitnic-cni", "socket": %q, "timeout": %q, "vlan": %d}]}`, p.agent.sock, timeout, vlan))
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

// add runs ADD, which has to succeed.
func (p *cniPods) add(list *libcni.NetworkConfigList) *current.Result {
	p.t.Helper()
	got, err := p.plugins.AddNetworkList(p.t.Context(), list, p.pod)
	if err != nil {
		p.t.Fatal(err)
	}
	result, err := current.NewResultFromResult(got)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// del runs CHECK and DEL, and checks that nothing is left.
func (p *cniPods) del(list *libcni.NetworkConfigList) {
	p.t.Helper()
	if err := p.plugins.CheckNetworkList(p.t.Context(), list, p.pod); err != nil {
		p.t.Error(err)
	}
	if err := p.plugins.DelNetworkList(p.t.Context(), list, p.pod); err != nil {
		p.t.Error(err)
	}
	p.nothingLeft()
}

func (p *cniPods) nothingLeft() {
	p.t.Helper()
	if out := p.agent.card("list"); out != "" {
		p.t.Errorf("there are still cards:\n%s", out)
	}
	if links := testenv.Links(p.t, p.ns); !slices.Equal(links, []string{"lo"}) {
		p.t.Errorf("%v is left", links)
	}
}

// TestRDMACNI adds a card of the agent to a container with the CNI plugin, checks that the
// container reaches the LAN, and removes the card: without and with a VLAN. The test sets the
// addresses itself.
func TestRDMACNI(t *testing.T) {
	p := newCNIPods(t)
	list := p.network(0)
	if err := p.plugins.GetStatusNetworkList(t.Context(), list); err != nil {
		t.Error(err)
	}
	result := p.add(list)
	mac := testenv.Link(t, p.ns, "eth0").Attrs().HardwareAddr.String()
	if len(result.Interfaces) != 1 || result.Interfaces[0].Mac != mac || len(result.IPs) > 0 {
		t.Errorf("ADD answers %+v for a netdevice with the address %s", result, mac)
	}
	testenv.Address(t, p.ns, "eth0", addr(1)+"/24")
	ping(t, p.ns, addr(0), 2, 56)
	p.del(list)
	p.pace(list)
	t.Run("VLAN", p.vlan)
	eventually(t, func() bool { return len(p.unit.unitStatus().Hosts) == 0 }, "an I/O unit without hosts")
}

// paced is the number of times that pace makes and removes a container.
const paced = 9

// pace logs how long ADD takes until there is carrier. docs/scale.md has this time.
func (p *cniPods) pace(list *libcni.NetworkConfigList) {
	p.t.Helper()
	var took []time.Duration
	for range paced {
		began := time.Now()
		p.add(list)
		took = append(took, time.Since(began).Round(time.Millisecond))
		p.del(list)
	}
	slices.Sort(took)
	p.t.Logf("ADD: median %v, %v to %v, of %d", took[paced/2], took[0], took[paced-1], paced)
}

// vlan gives the container an interface in a VLAN. Frames have a tag on the LAN and none in the
// container, and the container receives no untagged frames of the LAN. ADD has to fail for a VLAN
// that the policy does not allow.
func (p *cniPods) vlan(t *testing.T) {
	const lan, own = "10.79.0.1", "10.79.0.2"
	run(t, "ip", "-n", p.lan, "link", "add", "link", "lan0", "name", "lan0.10", "type", "vlan", "id", "10")
	testenv.Up(t, p.lan, "lan0.10")
	testenv.Address(t, p.lan, "lan0.10", lan+"/24")
	list := p.network(10)
	result := p.add(list)
	link := testenv.Link(t, p.ns, "eth0")
	if v, ok := link.(*netlink.Vlan); !ok || v.VlanId != 10 {
		t.Errorf("eth0 is %+v", link)
	}
	mac := link.Attrs().HardwareAddr.String()
	if len(result.Interfaces) != 2 || result.Interfaces[0].Name != "eth0" || result.Interfaces[0].Mac != mac {
		t.Fatalf("%+v", result.Interfaces)
	}
	below := result.Interfaces[1].Name
	if addresses := run(t, "ip", "-n", p.ns, "-o", "addr", "show", "dev", below); addresses != "" {
		t.Errorf("the netdevice below has addresses:\n%s", addresses)
	}
	if out := run(t, "ip", "-n", p.ns, "-6", "-o", "addr", "show", "dev", "eth0"); !strings.Contains(out, "fe80") {
		t.Errorf("eth0 has no IPv6 address: %q", out)
	}
	testenv.Address(t, p.ns, "eth0", own+"/24")
	ping(t, p.ns, lan, 2, 56)
	p.del(list)

	_, err := p.plugins.AddNetworkList(t.Context(), p.network(20), p.pod)
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater || !strings.Contains(e.Error(), "VLAN 20") ||
		!strings.Contains(e.Error(), "`vlans`") {
		t.Errorf("a VLAN that the policy does not allow: %v", err)
	}
	if e != nil {
		testenv.Explained(t, e.Error())
	}
	p.nothingLeft()
}
