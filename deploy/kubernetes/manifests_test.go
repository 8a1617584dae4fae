//go:build !race

// Package kubernetes has manifests. The tests read them as a cluster would. TestRDMAPod runs
// what the pods of hosts run.
package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/splitnic/splitnic/internal/units"
)

// objects has the objects of a kustomization.
type objects struct {
	set     *apps.DaemonSet
	service *core.Service
	configs map[string]*core.ConfigMap
}

// build does what `kubectl kustomize` does. Fields that the API does not know are errors.
func build(t *testing.T, dir string) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	o := objects{configs: map[string]*core.ConfigMap{}}
	for _, r := range made.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var into any
		switch r.GetKind() {
		case "ConfigMap":
			c := &core.ConfigMap{}
			o.configs[r.GetName()] = c
			into = c
		case "Service":
			o.service = &core.Service{}
			into = o.service
		case "DaemonSet":
			o.set = &apps.DaemonSet{}
			into = o.set
		default:
			t.Fatalf("%s has a %s", dir, r.GetKind())
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Errorf("%s: %s %s: %v", dir, r.GetKind(), r.GetName(), err)
		}
	}
	if o.set == nil || len(o.set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%s has no DaemonSet with a container", dir)
	}
	return o
}

// TestPairs builds kustomizations of two directories and the namespace, as for a cluster that has
// both. It expects the objects of all of them, in the one namespace.
func TestPairs(t *testing.T) {
	dirs := []string{"host", "device-plugin", "agent", "iounit"}
	for i, one := range dirs {
		for _, other := range dirs[i+1:] {
			if one == "host" && other == "device-plugin" {
				continue // the same pods in two ways
			}
			files := filesys.MakeFsOnDisk()
			dir, err := os.MkdirTemp(".", "pair") // kustomize takes no absolute path for a resource
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			text := fmt.Sprintf("resources: [../namespace, ../%s, ../%s]\n", one, other)
			if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
			if err != nil {
				t.Errorf("%s and %s: %v", one, other, err)
				continue
			}
			kinds := map[string]int{}
			for _, r := range made.Resources() {
				kinds[r.GetKind()]++
				name := r.GetNamespace()
				if r.GetKind() == "Namespace" {
					name = r.GetName()
				}
				if name != "splitnic" {
					t.Errorf("%s and %s: %s is in %q", one, other, r.GetName(), name)
				}
			}
			if kinds["Namespace"] != 1 || kinds["DaemonSet"] != 2 || kinds["ConfigMap"] != 2 {
				t.Errorf("%s and %s have %v", one, other, kinds)
			}
		}
	}
}

// dangling returns what the pods refer to and what does not exist, and unused volumes.
func (o *objects) dangling() (names []string) {
	pod := o.set.Spec.Template
	for name, value := range o.set.Spec.Selector.MatchLabels {
		if pod.Labels[name] != value {
			names = append(names, fmt.Sprintf("the label %s=%s of the pods", name, value))
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = false
		if v.ConfigMap != nil && o.configs[v.ConfigMap.Name] == nil {
			names = append(names, "the ConfigMap "+v.ConfigMap.Name)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if _, there := volumes[m.Name]; !there {
				names = append(names, "the volume "+m.Name)
			}
			volumes[m.Name] = true
		}
	}
	for name, used := range volumes {
		if !used {
			names = append(names, "a mount of the volume "+name)
		}
	}
	return names
}

// TestManifests builds each kustomization. It expects no unknown fields, no references to
// something that does not exist, and both probes in every pod.
func TestManifests(t *testing.T) {
	for _, dir := range []string{"host", "device-plugin", "agent", "iounit"} {
		o := build(t, dir)
		if names := o.dangling(); len(names) > 0 {
			t.Errorf("%s does not have %q", dir, names)
		}
		c := o.set.Spec.Template.Spec.Containers[0]
		for _, p := range []*core.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if p == nil || p.Exec == nil || !strings.HasPrefix(strings.Join(p.Exec.Command, " "), "splitnic wait ") {
				t.Errorf("%s has a probe %+v", dir, p)
			}
		}
	}
}

// TestPluginInstalled runs the init container of the agent's pod twice, as when a pod is
// replaced. It expects the plugin of the image in the directory of the node, and nothing else.
func TestPluginInstalled(t *testing.T) {
	image, node := t.TempDir(), t.TempDir()
	c := build(t, "agent").set.Spec.Template.Spec.InitContainers[0]
	args := slices.Clone(c.Command)
	for i := range args {
		args[i] = strings.NewReplacer("/usr/local/lib/cni", image, c.VolumeMounts[0].MountPath, node).Replace(args[i])
	}
	for _, version := range []string{"old", "new"} {
		if err := os.WriteFile(filepath.Join(image, "splitnic-cni"), []byte(version), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		text, err := os.ReadFile(filepath.Join(node, "splitnic-cni"))
		files, _ := os.ReadDir(node) // no files if the directory cannot be read
		if err != nil || string(text) != version || len(files) != 1 {
			t.Errorf("%v: %q, %v", files, text, err)
		}
	}
}

// TestUnprivileged expects the pods of device-plugin to be unprivileged, and to have the same
// arguments as those of host.
func TestUnprivileged(t *testing.T) {
	base, pods := build(t, "host"), build(t, "device-plugin")
	c := pods.set.Spec.Template.Spec.Containers[0]
	s := c.SecurityContext
	if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) == 0 {
		t.Errorf("%+v", s)
	}
	if n := c.Resources.Limits["rdma/splitnic"]; n.Value() != 1 {
		t.Errorf("the pods ask for %v", c.Resources.Limits)
	}
	for _, v := range pods.set.Spec.Template.Spec.Volumes {
		if v.HostPath != nil && v.HostPath.Path == "/dev/infiniband" {
			t.Error("the devices are those of the node, which an unprivileged pod may not open")
		}
	}
	if b := base.set.Spec.Template.Spec.Containers[0]; !*b.SecurityContext.Privileged || !slices.Equal(b.Args, c.Args) {
		t.Errorf("the pods of host are %+v", b)
	}
}

// TestResources expects every pod to have requests for processors and memory. The memory that it
// may register is pinned and counts, and so has to be below its memory limit: otherwise the
// kernel kills it.
func TestResources(t *testing.T) {
	for dir, of := range map[string]struct{ config, key string }{
		"host": {"host.yaml", "direct-memory"}, "device-plugin": {"host.yaml", "direct-memory"},
		"agent": {"agent.yaml", "direct-memory"}, "iounit": {"iounit.yaml", "max-memory"},
	} {
		o := build(t, dir)
		c := o.set.Spec.Template.Spec.Containers[0]
		limit, request := c.Resources.Limits.Memory().Value(), c.Resources.Requests.Memory().Value()
		if request == 0 || limit < request || c.Resources.Requests.Cpu().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
			t.Errorf("%s has the resources %+v", dir, c.Resources)
		}
		var config map[string]any
		if err := yaml.Unmarshal([]byte(o.configs[o.set.Name].Data[of.config]), &config); err != nil {
			t.Fatal(err)
		}
		if advanced, ok := config["advanced"].(map[string]any); ok {
			config = advanced
		}
		registered, err := units.Memory(fmt.Sprint(config[of.key]))
		const own = 256 << 20 // memory of the process, and of a host's sessions
		if err != nil || registered == 0 || limit < registered+own {
			t.Errorf("%s: %s is %v (%v), the limit %d", dir, of.key, config[of.key], err, limit)
		}
	}
}

// TestPodMonitors expects one PodMonitor for the pods of each DaemonSet.
func TestPodMonitors(t *testing.T) {
	text, err := os.ReadFile("podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]bool{}
	for _, dir := range []string{"host", "agent", "iounit"} {
		labels[build(t, dir).set.Spec.Template.Labels["app"]] = true
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var m struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Spec struct {
				Selector struct {
					MatchLabels map[string]string `json:"matchLabels"`
				} `json:"selector"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(document, &m); err != nil {
			t.Fatal(err)
		}
		app := m.Spec.Selector.MatchLabels["app"]
		if m.Kind != "PodMonitor" || m.Metadata.Namespace != "splitnic" || m.Metadata.Name != app || !labels[app] {
			t.Errorf("%+v", m)
		}
		delete(labels, app)
	}
	if len(labels) > 0 {
		t.Errorf("nothing scrapes %v", labels)
	}
}

// TestService expects the service to select the pods of the I/O unit, with the port and the name
// that hosts look up.
func TestService(t *testing.T) {
	o := build(t, "iounit")
	labels := o.set.Spec.Template.Labels
	for name, value := range o.service.Spec.Selector {
		if labels[name] != value {
			t.Errorf("the pods do not have %s=%s", name, value)
		}
	}
	port := o.service.Spec.Ports[0]
	if o.service.Spec.ClusterIP != core.ClusterIPNone || port.Name != "splitnic" || port.Protocol != core.ProtocolTCP ||
		port.Port != o.set.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort {
		t.Errorf("%+v", o.service.Spec)
	}
}

// TestPod expects the pod of examples/config to be one of the Kubernetes API, and to ask for the
// network that is defined beside it.
func TestPod(t *testing.T) {
	text, err := os.ReadFile("../../examples/config/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition, pod, _ := bytes.Cut(text, []byte("\n---\n"))
	var network struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	var p core.Pod
	if err := yaml.UnmarshalStrict(pod, &p); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(definition, &network); err != nil || network.Kind != "NetworkAttachmentDefinition" ||
		network.Metadata.Name != p.Annotations["k8s.v1.cni.cncf.io/networks"] ||
		network.Metadata.Namespace != p.Namespace || p.Kind != "Pod" {
		t.Errorf("%+v, %v; the pod has %v", network, err, p.Annotations)
	}
}
