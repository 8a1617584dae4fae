package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// cniRuntime is a container runtime: it runs the plugin as a process through libcni. The agent
// is that of an agentFixture.
type cniRuntime struct {
	*agentFixture
	t    testing.TB
	bin  string // has splitnic-cni and IPAM plugins
	dir  string
	libs *libcni.CNIConfig
}

// plugins builds the plugins and cnitool once, for all tests, as the product is built. It returns
// their directory, which TestMain removes.
var plugins = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "splitnic-plugins")
	if err != nil {
		return "", err
	}
	pluginsDir = dir
	const cni = "github.com/containernetworking/"
	build := exec.Command("go", "build", "-trimpath", "-buildmode=pie", "-o", dir+"/",
		"github.com/splitnic/splitnic/cmd/splitnic-cni", cni+"cni/cnitool",
		cni+"plugins/plugins/ipam/host-local", cni+"plugins/plugins/ipam/static", cni+"plugins/plugins/ipam/dhcp")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// pluginsDir is the directory of plugins, once it exists.
var pluginsDir string

func newCNI(t testing.TB, change ...func(*iounit.Config)) *cniRuntime {
	t.Helper()
	testenv.NeedTools(t, "go", "ping")
	r := &cniRuntime{agentFixture: newAgentFixture(t, change...), t: t, dir: t.TempDir()}
	var err error
	if r.bin, err = plugins(); err != nil {
		t.Fatal(err)
	}
	r.reboot()
	return r
}

// reboot makes the runtime forget which attachments it has made.
func (r *cniRuntime) reboot() {
	cache, err := os.MkdirTemp(r.dir, "cache")
	if err != nil {
		r.t.Fatal(err)
	}
	// libcni would make the cache directory when first needed, also several times at once.
	runs := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
	r.libs = libcni.NewCNIConfigWithCacheDir([]string{r.bin}, cache, runs)
}

// addresses is the range of addresses that host-local gives in a network.
type addresses struct{ first, last string }

var podAddresses = addresses{"10.78.1.1", "10.78.1.254"}

// network returns a network configuration with these fields of the plugin.
func (r *cniRuntime) network(name string, a addresses, fields map[string]any) *libcni.NetworkConfigList {
	r.t.Helper()
	plugin := map[string]any{
		"type": "splitnic-cni", "socket": r.sock, "timeout": "2m", "capabilities": map[string]bool{"mac": true},
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(r.dir, "ipam"),
			"ranges": [][]map[string]string{{
				{"subnet": "10.78.0.0/16", "rangeStart": a.first, "rangeEnd": a.last, "gateway": "10.78.0.1"},
			}},
			"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
		},
	}
	maps.Copy(plugin, fields)
	text, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": name, "plugins": []any{plugin}})
	if err != nil {
		r.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// pod returns a container with a new network namespace.
func (r *cniRuntime) pod(container string) *libcni.RuntimeConf {
	r.t.Helper()
	return podIn(container, testenv.NetNS(r.t))
}

func podIn(container, ns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: container, NetNS: netns.Path(ns), IfName: "eth0"}
}

// add runs ADD, which has to succeed.
func (r *cniRuntime) add(list *libcni.NetworkConfigList, pod *libcni.RuntimeConf) *current.Result {
	r.t.Helper()
	got, err := r.libs.AddNetworkList(r.t.Context(), list, pod)
	// The plugins' library gives the kernel five seconds to find duplicates of IPv6 addresses. On a
	// busy machine these can be too few: a runtime tries again then.
	end := time.Now().Add(testenv.Patience)
	for err != nil && strings.Contains(err.Error(), "tentative addresses") && time.Now().Before(end) {
		got, err = r.libs.AddNetworkList(r.t.Context(), list, pod)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	result, err := current.NewResultFromResult(got)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

// plugin returns the process that libcni would start for ADD, for tests that signal it or change
// its files.
func (r *cniRuntime) plugin(list *libcni.NetworkConfigList, pod *libcni.RuntimeConf) *exec.Cmd {
	r.t.Helper()
	config, err := libcni.InjectConf(list.Plugins[0], map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(r.bin, "splitnic-cni"))
	cmd.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + pod.ContainerID, "CNI_NETNS=" + pod.NetNS, "CNI_IFNAME=" + pod.IfName,
		"CNI_PATH=" + r.bin,
	}
	cmd.Stdin = bytes.NewReader(config.Bytes)
	return cmd
}

// leased returns the addresses that host-local has given in a network.
func (r *cniRuntime) leased(network string) (ips []string) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "ipam", network, "10.*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		ips = append(ips, filepath.Base(f))
	}
	return ips
}

// owners returns the owners of the agent's cards, sorted.
func (r *cniRuntime) owners() (owners []string) {
	for _, i := range r.agent.set.List() {
		owners = append(owners, i.Spec.Owner)
	}
	slices.Sort(owners)
	return owners
}

// reaches pings the LAN from a container.
func (r *cniRuntime) reaches(pod *libcni.RuntimeConf) {
	r.t.Helper()
	testenv.Run(r.t, filepath.Base(pod.NetNS), "ping", "-c", "1", "-W", "10", "10.78.0.1")
}

// nothingLeft expects no cards, no addresses of the network and no netdevices of the pods.
func (r *cniRuntime) nothingLeft(network string, pods ...*libcni.RuntimeConf) {
	r.t.Helper()
	if owners := r.owners(); len(owners) > 0 {
		r.t.Errorf("cards are left of %q", owners)
	}
	if ips := r.leased(network); len(ips) > 0 {
		r.t.Errorf("%s still gives %q", network, ips)
	}
	for _, pod := range pods {
		if links := testenv.Links(r.t, pod.NetNS); !slices.Equal(links, []string{"lo"}) {
			r.t.Errorf("%v is left", links)
		}
	}
}

// failed expects an error of the plugin that has this code and these words, and is documented.
func failed(t *testing.T, err error, code uint, words ...string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no error of a plugin", err)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			t.Errorf("%q does not have %q", e, w)
		}
	}
	if e.Code != code {
		t.Errorf("code %d instead of %d: %v", e.Code, code, e)
	}
	testenv.Explained(t, e.Error())
}

// TestNetnsCNI runs the commands for a container. It expects ADD to give the container an
// address and carrier, CHECK to find a missing address, and DEL to leave nothing, also without
// an ADD before.
func TestNetnsCNI(t *testing.T) {
	r := newCNI(t)
	list := r.network("pods", podAddresses, map[string]any{"mtu": 1400})
	if err := r.libs.GetStatusNetworkList(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	pod := r.pod("0123456789abcdef")
	if err := r.libs.DelNetworkList(t.Context(), list, pod); err != nil {
		t.Errorf("DEL of what was never there: %v", err)
	}
	result := r.add(list, pod)
	link := testenv.Link(t, pod.NetNS, "eth0").Attrs()
	want := &current.Interface{Name: "eth0", Mac: link.HardwareAddr.String(), Mtu: 1400, Sandbox: pod.NetNS}
	if len(result.Interfaces) != 1 || *result.Interfaces[0] != *want || link.MTU != 1400 {
		t.Errorf("%+v instead of %+v", result.Interfaces, want)
	}
	if link.RawFlags&unix.IFF_LOWER_UP == 0 {
		t.Error("eth0 has no carrier after ADD")
	}
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.78.1.1/16" || *result.IPs[0].Interface != 0 {
		t.Errorf("%+v", result.IPs)
	}
	r.reaches(pod)
	routes := testenv.Run(t, filepath.Base(pod.NetNS), "ip", "route", "show", "default")
	if !strings.Contains(routes, "10.78.0.1 dev eth0") {
		t.Errorf("the default route is %q", routes)
	}
	if err := r.libs.CheckNetworkList(t.Context(), list, pod); err != nil {
		t.Error(err)
	}
	if got := r.owners(); !slices.Equal(got, []string{"cni/pods/0123456789abcdef/eth0"}) {
		t.Errorf("the owners of the cards are %q", got)
	}

	// Another ADD fails and does not affect the card.
	_, err := r.libs.AddNetworkList(t.Context(), list, pod)
	failed(t, err, 100, "network pods", "eth0", "0123456789ab")
	r.reaches(pod)
	// Another network cannot have the same interface. Its DEL does not remove the card.
	other := r.network("other", podAddresses, nil)
	_, err = r.libs.AddNetworkList(t.Context(), other, pod)
	failed(t, err, types.ErrInvalidNetworkConfig, "network other", "netdevice", "eth0")
	if err := r.libs.DelNetworkList(t.Context(), other, pod); err != nil {
		t.Error(err)
	}
	r.reaches(pod)

	testenv.With(t, pod.NetNS, func(h *netlink.Handle) error {
		return h.AddrDel(testenv.Link(t, pod.NetNS, "eth0"), &netlink.Addr{IPNet: &result.IPs[0].Address})
	})
	failed(t, r.libs.CheckNetworkList(t.Context(), list, pod), 102, "10.78.1.1")
	for range 2 {
		if err := r.libs.DelNetworkList(t.Context(), list, pod); err != nil {
			t.Error(err)
		}
		r.nothingLeft("pods", pod)
	}

	// The namespace is removed before DEL.
	gone := fmt.Sprintf("sntest-cni-gone-%d", os.Getpid())
	if err := netns.New(gone); err != nil {
		t.Fatal(err)
	}
	late := podIn("late", gone)
	r.add(list, late)
	if err := netns.Delete(gone); err != nil {
		t.Fatal(err)
	}
	if err := r.libs.DelNetworkList(t.Context(), list, late); err != nil {
		t.Error(err)
	}
	r.nothingLeft("pods")
}

// TestNetnsCNIChain gives a container two cards. The second one has the MAC address that the
// runtime requests, and its plugin is the second one in a chain.
func TestNetnsCNIChain(t *testing.T) {
	r := newCNI(t)
	list := r.network("pods", podAddresses, nil)
	pod := r.pod("c1")
	first := r.add(list, pod)
	const mac = "02:00:00:00:00:77"
	second := &libcni.RuntimeConf{
		ContainerID: "c1", NetNS: pod.NetNS, IfName: "net1", CapabilityArgs: map[string]any{"mac": mac},
	}
	var before map[string]any
	text, err := json.Marshal(first)
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		t.Fatal(err)
	}
	chained := r.network("more", addresses{"10.78.2.1", "10.78.2.9"}, map[string]any{"prevResult": before})
	result := r.add(chained, second)
	if len(result.Interfaces) != 2 || result.Interfaces[0].Name != "eth0" || result.Interfaces[1].Name != "net1" ||
		result.Interfaces[1].Mac != mac {
		t.Errorf("%+v", result.Interfaces)
	}
	if len(result.IPs) != 2 || *result.IPs[1].Interface != 1 || result.IPs[1].Address.String() != "10.78.2.1/16" {
		t.Errorf("%+v", result.IPs)
	}
	if got := testenv.Link(t, pod.NetNS, "net1").Attrs().HardwareAddr.String(); got != mac {
		t.Errorf("net1 has the MAC address %s", got)
	}
	if err := r.libs.CheckNetworkList(t.Context(), chained, second); err != nil {
		t.Error(err)
	}
	for list, pod := range map[*libcni.NetworkConfigList]*libcni.RuntimeConf{list: pod, chained: second} {
		if err := r.libs.DelNetworkList(t.Context(), list, pod); err != nil {
			t.Error(err)
		}
	}
	r.nothingLeft("pods", pod)
}

// TestNetnsCNIAnnounces gives the address of a removed container to another one, which sends
// nothing. It expects a neighbour that knew the first container to learn the MAC address of the
// second.
func TestNetnsCNIAnnounces(t *testing.T) {
	r := newCNI(t)
	list := r.network("one", addresses{"10.78.3.1", "10.78.3.1"}, nil)
	// A bridge forgets its neighbours when it has no port, and when it takes the MAC address of
	// another port because the previous port is removed.
	r.add(r.network("pods", podAddresses, nil), r.pod("bystander"))
	testenv.With(t, r.lan, func(h *netlink.Handle) error {
		return h.LinkSetHardwareAddr(testenv.Link(t, r.lan, "br0"), net.HardwareAddr{2, 0, 0, 0, 0, 1})
	})
	neighbour := func() (mac net.HardwareAddr) {
		testenv.With(t, r.lan, func(h *netlink.Handle) error {
			all, err := h.NeighList(testenv.Link(t, r.lan, "br0").Attrs().Index, netlink.FAMILY_V4)
			for _, n := range all {
				if n.IP.String() == "10.78.3.1" {
					mac = n.HardwareAddr
				}
			}
			return err
		})
		return mac
	}
	for _, name := range []string{"first", "second"} {
		pod := r.pod(name)
		result := r.add(list, pod)
		if name == "first" {
			r.reaches(pod)
		}
		testenv.Eventually(t, func() bool { return neighbour().String() == result.Interfaces[0].Mac },
			"a neighbour who knows the card of the %s container: %v", name, result.Interfaces[0].Mac)
		if err := r.libs.DelNetworkList(t.Context(), list, pod); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNetnsCNIMany makes and removes 30 containers at once. It expects carrier and a different
// address for each, and that nothing of them is left.
func TestNetnsCNIMany(t *testing.T) {
	const many = 30
	r := newCNI(t)
	list := r.network("pods", podAddresses, nil)
	pods := make([]*libcni.RuntimeConf, many)
	for i := range pods {
		pods[i] = r.pod(fmt.Sprint("pod", i))
	}
	each := func(do func(ctx context.Context, pod *libcni.RuntimeConf) error) {
		t.Helper()
		var all sync.WaitGroup
		for _, pod := range pods {
			all.Go(func() {
				if err := do(context.Background(), pod); err != nil {
					t.Errorf("%s: %v", pod.ContainerID, err)
				}
			})
		}
		all.Wait()
	}
	each(func(ctx context.Context, pod *libcni.RuntimeConf) error {
		_, err := r.libs.AddNetworkList(ctx, list, pod)
		return err
	})
	if ips := r.leased("pods"); len(ips) != many {
		t.Errorf("%d containers have %d addresses", many, len(ips))
	}
	if got := r.agent.states(); got[cards.Connected] != many {
		t.Errorf("after ADD the cards are %v", got)
	}
	r.reaches(pods[many-1])
	each(func(ctx context.Context, pod *libcni.RuntimeConf) error {
		return r.libs.CheckNetworkList(ctx, list, pod)
	})
	each(func(ctx context.Context, pod *libcni.RuntimeConf) error { return r.libs.DelNetworkList(ctx, list, pod) })
	r.nothingLeft("pods", pods...)
	testenv.Eventually(t, func() bool { return len(r.unit.Status().Hosts) == 0 }, "an I/O unit without hosts")
}

// TestNetnsCNICollect expects GC to remove the attachments that a runtime has forgotten, and no
// cards of other networks or owners.
func TestNetnsCNICollect(t *testing.T) {
	r := newCNI(t)
	list, other := r.network("pods", podAddresses, nil), r.network("other", addresses{"10.78.4.1", "10.78.4.9"}, nil)
	kept, lost, foreign := r.pod("kept"), r.pod("lost"), r.pod("kept")
	r.add(list, kept)
	r.add(list, lost)
	r.add(other, foreign)
	byHand := testenv.NetNS(t)
	if _, err := r.client().Add(t.Context(), &cards.Spec{Name: "hand", NetNS: byHand, Netdevice: "eth0"}); err != nil {
		t.Fatal(err)
	}
	r.reboot()
	err := r.libs.GCNetworkList(t.Context(), list, &libcni.GCArgs{
		ValidAttachments: []types.GCAttachment{{ContainerID: "kept", IfName: "eth0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.owners(); !slices.Equal(got, []string{"", "cni/other/kept/eth0", "cni/pods/kept/eth0"}) {
		t.Errorf("after GC there are cards of %q", got)
	}
	if got := r.leased("pods"); len(got) != 1 {
		t.Errorf("after GC the addresses of one container are %q", got)
	}
	if links := testenv.Links(t, lost.NetNS); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left", links)
	}
	r.reaches(kept)
	for _, l := range []*libcni.NetworkConfigList{list, other} {
		if err := r.libs.GCNetworkList(t.Context(), l, &libcni.GCArgs{}); err != nil {
			t.Error(err)
		}
	}
	if got := r.owners(); !slices.Equal(got, []string{""}) {
		t.Errorf("with no attachment valid there are cards of %q", got)
	}
}

// TestNetnsCNIRefused requests a MAC address that the I/O unit's policy does not allow, so the
// card never gets carrier. It expects ADD to fail without waiting for the timeout of ten
// minutes.
func TestNetnsCNIRefused(t *testing.T) {
	rules, err := policy.Parse("policy.yaml", []byte("default: {macs: 02:aa:00:00:00:02}"))
	if err != nil {
		t.Fatal(err)
	}
	r := newCNI(t, func(c *iounit.Config) { c.Policy = rules })
	pod := r.pod("c1")
	list := r.network("pods", podAddresses, map[string]any{"mac": "02:aa:00:00:00:01", "timeout": "10m"})
	_, err = r.libs.AddNetworkList(t.Context(), list, pod)
	failed(t, err, types.ErrTryAgainLater, "network pods", "02:aa:00:00:00:01", "not allowed")
	r.nothingLeft("pods", pod)
}

// TestNetnsCNIUnfinished ends ADD while it waits for carrier, which the card never gets: with
// SIGTERM, SIGKILL and the timeout. It expects that nothing is left, after SIGKILL with the help
// of DEL or GC.
func TestNetnsCNIUnfinished(t *testing.T) {
	r := newCNI(t)
	nobody := map[string]any{"iounits": []string{testenv.Loopback() + ":1"}}
	list := r.network("pods", podAddresses, nobody)
	pod := r.pod("c1")
	start := func() *exec.Cmd {
		t.Helper()
		cmd := r.plugin(list, pod)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, func() bool { return len(r.owners()) == 1 }, "a card")
		return cmd
	}
	end := func(by syscall.Signal) {
		t.Helper()
		cmd := start()
		if err := cmd.Process.Signal(by); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("after %v the plugin has succeeded", by)
		}
	}
	end(syscall.SIGTERM)
	r.nothingLeft("pods", pod)
	end(syscall.SIGKILL)
	if got := r.owners(); len(got) != 1 {
		t.Errorf("after SIGKILL there are cards of %q", got)
	}
	if err := r.libs.DelNetworkList(t.Context(), list, pod); err != nil {
		t.Error(err)
	}
	r.nothingLeft("pods", pod)
	end(syscall.SIGKILL)
	if err := r.libs.GCNetworkList(t.Context(), list, &libcni.GCArgs{}); err != nil {
		t.Error(err)
	}
	r.nothingLeft("pods", pod)

	var err error
	for s := 1; s == 1 || s < 100 && strings.Contains(err.Error(), "no answer within"); s *= 2 { // of a busy machine
		nobody["timeout"] = fmt.Sprint(s, "s")
		if _, err = r.libs.AddNetworkList(t.Context(), r.network("pods", podAddresses, nobody), pod); err == nil {
			t.Fatal("a card without I/O unit was added")
		}
	}
	failed(t, err, types.ErrTryAgainLater, "network pods", "no carrier", "connection refused")
	r.nothingLeft("pods", pod)
	// The runtime cannot read the result.
	delete(nobody, "iounits")
	nobody["timeout"] = "2m"
	list = r.network("pods", podAddresses, nobody)
	closed, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	defer w.Close()
	deaf := r.plugin(list, pod)
	deaf.Stdout = w
	if err := deaf.Run(); err == nil {
		t.Error("a result that nobody can read is no error")
	}
	r.nothingLeft("pods", pod)
}

// BenchmarkNetnsCNI measures how long ADD takes until the container has carrier and an address,
// including the processes of the plugin and of host-local.
func BenchmarkNetnsCNI(b *testing.B) {
	r := newCNI(b)
	list := r.network("pods", podAddresses, nil)
	pod := r.pod("c1")
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		r.add(list, pod)
		took = append(took, time.Since(began))
		if err := r.libs.DelNetworkList(b.Context(), list, pod); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "median-ms/ADD")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms/ADD")
}
