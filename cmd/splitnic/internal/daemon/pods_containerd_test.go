//go:build pods

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/splitnic/splitnic/internal/testenv"
)

// containerd is a containerd with its own directories, used through the CRI, as a kubelet does.
// A pod is a sandbox: CNI is not used for the containers in it.
type containerd struct {
	*podFixture
	client cri.RuntimeServiceClient
}

// containerdConfig disables what this machine may not support: lowering oom_score_adj needs a
// capability that root may lack.
const containerdConfig = `
version = 2
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[5]q
    conf_dir = %[6]q
`

func newContainerd(f *podFixture) *containerd {
	f.t.Helper()
	dir := filepath.Join(f.dir, "containerd")
	sock := filepath.Join(dir, "sock")
	image := filepath.Join(dir, "image.tar")
	if err := os.Mkdir(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	if _, err := newPodman(f).podman("save", "--format", "docker-archive", "--output", image, podImage); err != nil {
		f.t.Fatal(err)
	}
	config := fmt.Appendf(nil, containerdConfig, filepath.Join(dir, "root"), filepath.Join(dir, "state"), sock, podImage,
		f.bin, f.network)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), config, 0o600); err != nil {
		f.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	daemon := exec.Command("containerd", "--config", filepath.Join(dir, "config.toml"))
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		f.t.Fatal(err)
	}
	c := &containerd{podFixture: f}
	conn, err := grpc.NewClient("unix://"+sock, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	c.client = cri.NewRuntimeServiceClient(conn)
	f.t.Cleanup(func() {
		for _, name := range c.pods(f.t) {
			if err := c.remove(name); err != nil {
				f.t.Error(err)
			}
		}
		conn.Close()
		if err := daemon.Process.Signal(unix.SIGTERM); err != nil {
			f.t.Error(err)
		}
		_ = daemon.Wait() // returns an error because of the signal
		if text, err := os.ReadFile(log.Name()); f.t.Failed() {
			f.t.Logf("containerd: %s, %v", text, err)
		}
	})
	testenv.Eventually(f.t, func() bool {
		s, err := c.client.Status(f.t.Context(), &cri.StatusRequest{})
		return err == nil && len(s.Status.Conditions) > 0
	}, "containerd that answers")
	if _, err := command(exec.CommandContext(f.t.Context(), "ctr", "--address", sock, "--namespace", "k8s.io", "images",
		"import", image)); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// criTime is the timeout of a request.
const criTime = 5 * time.Minute

// ask makes a request with the timeout criTime.
func ask(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), criTime)
	defer cancel()
	return do(ctx)
}

func (c *containerd) run(name string) error {
	return ask(func(ctx context.Context) error {
		_, err := c.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
			Linux:    &cri.LinuxPodSandboxConfig{},
		}})
		return err
	})
}

// sandboxes returns the sandboxes of that name, or all if it is empty.
func (c *containerd) sandboxes(ctx context.Context, name string) (some []*cri.PodSandbox, err error) {
	all, err := c.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	for _, s := range all.Items {
		if name == "" || s.Metadata.Name == name {
			some = append(some, s)
		}
	}
	return some, nil
}

func (c *containerd) remove(name string) error {
	return ask(func(ctx context.Context) error {
		all, err := c.sandboxes(ctx, name)
		for _, s := range all {
			if _, err := c.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.Id}); err != nil {
				return err
			}
			if _, err := c.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
				return err
			}
		}
		return err
	})
}

func (c *containerd) inspect(t testing.TB, name string) (ns, address string) {
	t.Helper()
	all, err := c.sandboxes(t.Context(), name)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d pods are named %s, %v", len(all), name, err)
	}
	s, err := c.client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: all[0].Id, Verbose: true})
	var info struct{ Pid int }
	if err == nil {
		err = json.Unmarshal([]byte(s.Info["info"]), &info)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/ns/net", info.Pid), s.Status.Network.Ip
}

func (c *containerd) pods(t testing.TB) (names []string) {
	t.Helper()
	err := ask(func(ctx context.Context) error {
		all, err := c.sandboxes(ctx, "")
		for _, s := range all {
			names = append(names, s.Metadata.Name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return names
}

// repeats returns true: a pod that could not be stopped stays, and the kubelet stops it again.
func (c *containerd) repeats() bool { return true }
