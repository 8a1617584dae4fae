package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

const imageFile = "../../deploy/container/Dockerfile"

// object has the fields of a ConfigMap or a DaemonSet in a manifest that the tests use.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				HostNetwork bool `yaml:"hostNetwork"`
				Containers  []podContainer
				Volumes     []podVolume
			}
		}
	}
}

type podContainer struct {
	Args            []string
	SecurityContext struct {
		Privileged bool
		ReadOnly   bool `yaml:"readOnlyRootFilesystem"`
	} `yaml:"securityContext"`
	ReadinessProbe struct {
		Exec struct{ Command []string }
	} `yaml:"readinessProbe"`
	VolumeMounts []volumeMount `yaml:"volumeMounts"`
}

type volumeMount struct {
	Name             string
	MountPath        string `yaml:"mountPath"`
	ReadOnly         bool   `yaml:"readOnly"`
	MountPropagation string `yaml:"mountPropagation"`
}

type podVolume struct {
	Name      string
	ConfigMap struct{ Name string } `yaml:"configMap"`
	Secret    struct {
		SecretName  string `yaml:"secretName"`
		DefaultMode uint32 `yaml:"defaultMode"`
	}
	HostPath struct{ Path, Type string } `yaml:"hostPath"`
}

// readManifest returns the DaemonSet of the manifest of a role, and its ConfigMaps by name.
func readManifest(t testing.TB, role string) (set object, maps map[string]object) {
	t.Helper()
	manifestFile := filepath.Join("../../deploy/kubernetes", role, role+".yaml")
	text, err := os.ReadFile(manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	maps = map[string]object{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", manifestFile, err)
		}
		switch o.Kind {
		case "DaemonSet":
			set = o
		case "ConfigMap":
			maps[o.Metadata.Name] = o
		}
	}
	if len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%s has no DaemonSet with one container", manifestFile)
	}
	return set, maps
}

// readImage returns the packages that the image installs, and its entry point.
func readImage(t testing.TB) (packages, entrypoint []string) {
	t.Helper()
	text, err := os.ReadFile(imageFile)
	if err != nil {
		t.Fatal(err)
	}
	last := string(text[bytes.LastIndex(text, []byte("\nFROM ")):])
	install := regexp.MustCompile(`apt-get install ((?:[^&\\]|\\\n)+)`).FindStringSubmatch(last)
	start := regexp.MustCompile(`(?m)^ENTRYPOINT (\[.*\])$`).FindStringSubmatch(last)
	if install == nil || start == nil {
		t.Fatalf("%s installs %q and starts %q", imageFile, install, start)
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(install[1], "\\\n", " ")) {
		if !strings.HasPrefix(word, "-") {
			packages = append(packages, word)
		}
	}
	if err := json.Unmarshal([]byte(start[1]), &entrypoint); err != nil {
		t.Fatalf("%s: ENTRYPOINT %s: %v", imageFile, start[1], err)
	}
	return packages, entrypoint
}

// filesOf returns the paths of the installed files of Debian packages and of the libraries that
// they depend on, one per line. Other dependencies are in every image, or are needed only for the
// installation.
func filesOf(t testing.TB, packages []string) string {
	t.Helper()
	depends := map[string]string{}
	for line := range strings.Lines(run(t, "dpkg-query", "-W", "-f", "${Package}\t${Pre-Depends},${Depends}\n")) {
		name, list, _ := strings.Cut(strings.TrimSpace(line), "\t")
		depends[name] = list
	}
	for i := 0; i < len(packages); i++ {
		for dependency := range strings.SplitSeq(depends[packages[i]], ",") {
			library := regexp.MustCompile(`^ *(lib[a-z0-9.+-]*)`).FindStringSubmatch(dependency)
			if library == nil || slices.Contains(packages, library[1]) {
				continue
			}
			if _, ok := depends[library[1]]; ok {
				packages = append(packages, library[1])
			}
		}
	}
	var files strings.Builder
	for line := range strings.Lines(run(t, "dpkg-query", append([]string{"-L"}, packages...)...)) {
		if name, ok := strings.CutPrefix(line, "/"); ok && !strings.HasPrefix(name, "usr/share/") {
			files.WriteString(name)
		}
	}
	return files.String()
}

// pod is a pod of the DaemonSet, with this machine as its node.
type pod struct {
	*daemon
	socket    string // status socket of the process
	container podContainer
	volumes   map[string]string // paths on the node, by name
	args      []string          // arguments of pod.sh after the directory
}

// newPod makes the files that a pod of the role needs on its node. The configuration of the manifest
// is edited as its users do, and gets further advanced settings, lines of that map.
func newPod(t testing.TB, r *fixture, role, socket, advanced string) *pod {
	t.Helper()
	testenv.NeedTools(t, "bash", "chroot", "dpkg-query", "nsenter", "tar")
	set, maps := readManifest(t, role)
	spec := set.Spec.Template.Spec
	p := &pod{
		socket: filepath.Join(socketDir, socket), container: spec.Containers[0], volumes: map[string]string{},
	}
	edit := func(config string) string {
		for what, with := range map[string]string{
			"10.0.0.1": unitAddress,
			"sha256:REPLACE-WITH-THE-FINGERPRINT-OF-THE-IO-UNIT": r.keys.unitPrint,
		} {
			if !strings.Contains(config, what) {
				t.Errorf("the manifest's configuration has no %s to be replaced", what)
			}
			config = strings.ReplaceAll(config, what, with)
		}
		return strings.Replace(config, "advanced:\n", "advanced:\n"+advanced, 1) +
			"device: " + hostDevice + "\npeer-timeout: 10s\n"
	}
	// pod.sh implements these settings.
	if s := p.container.SecurityContext; !s.Privileged || !s.ReadOnly || !spec.HostNetwork {
		t.Errorf("the manifest's pods are privileged: %t, have the node's network: %t, a read-only root: %t", s.Privileged,
			spec.HostNetwork, s.ReadOnly)
	}
	for _, v := range spec.Volumes {
		if !slices.ContainsFunc(p.container.VolumeMounts, func(m volumeMount) bool { return m.Name == v.Name }) {
			continue // a volume of another container
		}
		p.volumes[v.Name] = volumeSource(t, r, v, maps, role+".yaml", edit)
	}
	packages, entrypoint := readImage(t)
	files := filepath.Join(r.dir, "files")
	if err := os.WriteFile(files, []byte(filesOf(t, packages)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.args = []string{r.bin, files}
	for _, m := range p.container.VolumeMounts {
		volume := p.volumes[m.Name] + ":" + m.MountPath
		switch {
		case m.ReadOnly:
			volume += ":ro"
		case m.MountPropagation == "HostToContainer":
			volume += ":slave"
		}
		p.args = append(p.args, volume)
	}
	p.args = append(append(append(p.args, "--"), entrypoint...), p.container.Args...)
	return p
}

// volumeSource returns the path of a volume on the node.
func volumeSource(
	t testing.TB, r *fixture, v podVolume, maps map[string]object, file string, edit func(string) string,
) string {
	t.Helper()
	write := func(name, text string, mode os.FileMode) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	switch {
	case v.ConfigMap.Name != "":
		text, ok := maps[v.ConfigMap.Name].Data[file]
		if !ok {
			t.Fatalf("the manifest has no ConfigMap %s with a %s", v.ConfigMap.Name, file)
		}
		return write(file, edit(text), 0o644)
	case v.Secret.SecretName != "":
		key, err := os.ReadFile(r.keys.host)
		if err != nil {
			t.Fatal(err)
		}
		return write("key.pem", string(key), os.FileMode(v.Secret.DefaultMode))
	case strings.HasPrefix(v.HostPath.Path, "/var/"):
		return t.TempDir() // a test must not use the machine's own directory
	case v.HostPath.Type == "DirectoryOrCreate":
		if err := os.MkdirAll(v.HostPath.Path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return v.HostPath.Path
}

// start starts a pod, or starts it again after it has ended, and waits until it is ready.
func (p *pod) start(t testing.TB, log string) {
	t.Helper()
	prepare := func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC}
	}
	p.daemon = startAs(t, prepare, "./pod.sh", p.socket, log,
		append([]string{t.TempDir()}, p.args...)...)
	p.bin = p.args[0] // the status is read on the node, not in the pod
	probe := append([]string{"--target", strconv.Itoa(p.cmd.Process.Pid), "--mount", "--pid", "--ipc", "--root", "--wd",
		"--"}, p.container.ReadinessProbe.Exec.Command...)
	eventually(t, func() bool {
		if !p.running() {
			t.Fatalf("the pod ended with status %d", p.cmd.ProcessState.ExitCode())
		}
		return exec.CommandContext(t.Context(), "nsenter", probe...).Run() == nil
	}, "a pod that is ready")
}

// TestRDMAPod runs the host's pod of deploy/kubernetes, with the libraries of the image of
// deploy/container, and replaces the pod, as an upgrade does. The netdevice has to stay the same.
// The process must not keep more capabilities than it needs.
func TestRDMAPod(t *testing.T) {
	r := newFixture(t, "macvtap")
	if testenv.Link(t, "", "sn0") != nil {
		t.Fatal("there is a netdevice sn0")
	}
	p := newPod(t, r, "host", "host-sn0.sock", "")
	t.Cleanup(func() {
		if testenv.Link(t, "", "sn0") != nil {
			// run cannot be used here: the test's context is done.
			if out, err := exec.Command("ip", "link", "delete", "sn0").CombinedOutput(); err != nil {
				t.Errorf("deleting sn0: %v\n%s", err, out)
			}
		}
	})
	log := filepath.Join(r.dir, "pod.log")
	connected := func() bool { return p.hostStatus().State == "connected" }
	p.start(t, log)
	eventually(t, connected, "a session")
	testenv.Address(t, "", "sn0", addr(1)+"/24")
	ping(t, "", addr(0), 2, 1472)
	want := setting(t, "")
	// The container is privileged, and the process has to drop its privileges.
	const most = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_BROADCAST | 1<<unix.CAP_IPC_LOCK | 1<<unix.CAP_SYS_NICE |
		1<<unix.CAP_BPF
	for _, task := range tasks(t, "/proc/"+strconv.Itoa(p.cmd.Process.Pid)) {
		if got, err := strconv.ParseUint(task["CapPrm"], 16, 64); err != nil || got != most {
			t.Errorf("thread %s of the pod has the capabilities %#x (%v), and not %#x", task["Pid"], got, err, most)
		}
	}

	p.stop()
	eventually(t, func() bool { return !carrier(t, "", "sn0") }, "sn0 losing its carrier with its pod")
	p.start(t, log)
	eventually(t, connected, "a session")
	eventually(t, func() bool { return carrier(t, "", "sn0") }, "carrier of sn0")
	ping(t, "", addr(0), 2, 1472)
	if got := setting(t, ""); got != want {
		t.Errorf("sn0 was\n%sand is\n%s", want, got)
	}
}
