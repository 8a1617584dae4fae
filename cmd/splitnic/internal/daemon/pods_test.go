//go:build pods

package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestPodsPodman makes containers with Podman.
func TestPodsPodman(t *testing.T) {
	if beAgent(t) {
		return
	}
	f := newPodFixture(t)
	testRuntime(t, f, newPodman(f))
}

// TestPodsContainerd makes pods with containerd, as a kubelet does.
func TestPodsContainerd(t *testing.T) {
	if beAgent(t) {
		return
	}
	f := newPodFixture(t)
	testRuntime(t, f, newContainerd(f))
}

func testRuntime(t *testing.T, f *podFixture, r podRuntime) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *podFixture, podRuntime)
	}{{"life", testPod}, {"parallel", testPodsParallel}, {"killed", testPodsKilled}} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, f, r)
			f.nothingLeft(t)
			if leases := f.leases(t); len(leases) > 0 && (test.name != "killed" || r.repeats()) {
				t.Errorf("the addresses %q are not free", leases)
			}
			if left := r.pods(t); len(left) > 0 {
				t.Errorf("the runtime still has %q", left)
			}
			if left := f.newNamespaces(t); len(left) > 0 {
				t.Errorf("there are still the network namespaces %q", left)
			}
		})
	}
}

// testPod makes a pod, restarts the agent with SIGTERM and with SIGKILL, and removes the pod. It
// expects the netdevice and a TCP connection to survive the restarts.
func testPod(t *testing.T, f *podFixture, r podRuntime) {
	if err := r.run("web"); err != nil {
		t.Fatal(err)
	}
	ns, address := r.inspect(t, "web")
	if net.ParseIP(address) == nil {
		t.Errorf("the runtime says that the address is %q", address)
	}
	testenv.Ping(t, f.lan, address)
	is := testenv.Link(t, ns, "eth0").Attrs()
	speaks := f.connection(t, ns)
	speaks()
	for _, by := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		f.restart(by)
		f.connected(t, 1)
		speaks()
		now := testenv.Link(t, ns, "eth0").Attrs()
		if now.Index != is.Index || now.HardwareAddr.String() != is.HardwareAddr.String() {
			t.Errorf("eth0 was %+v, and is %+v", is, now)
		}
		testenv.Ping(t, f.lan, address)
	}
	if err := r.remove("web"); err != nil {
		t.Error(err)
	}
}

// eachPod calls do for n pods at once.
func eachPod(t *testing.T, n int, do func(name string) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			name := fmt.Sprint("pod", i)
			if err := do(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// testPodsParallel makes 50 pods at once and removes them.
func testPodsParallel(t *testing.T, f *podFixture, r podRuntime) {
	const many = 50
	began := time.Now()
	eachPod(t, many, r.run)
	t.Logf("%d pods made in %v", many, time.Since(began).Round(time.Second))
	f.connected(t, many)
	addresses := map[string]bool{}
	for i := range many {
		_, address := r.inspect(t, fmt.Sprint("pod", i))
		addresses[address] = true
	}
	if len(addresses) != many {
		t.Errorf("%d pods have %d addresses", many, len(addresses))
	}
	for address := range addresses {
		testenv.Run(t, f.lan, "ping", "-c", "1", "-W", "10", address)
		break
	}
	began = time.Now()
	eachPod(t, many, r.remove)
	t.Logf("removed in %v", time.Since(began).Round(time.Second))
}

// testPodsKilled kills the plugin and the agent at random times while pods are made and removed.
// These requests may fail. It expects that all pods can be removed afterwards.
func testPodsKilled(t *testing.T, f *podFixture, r podRuntime) {
	const many, rounds = 4, 5
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	stop, killed := make(chan struct{}), make(chan [2]int)
	go func() {
		var n [2]int
		for {
			select {
			case <-stop:
				killed <- n
				return
			case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
			}
			if random.IntN(4) == 0 {
				f.restart(unix.SIGKILL)
				n[1]++
			} else {
				n[0] += f.killPlugins()
			}
		}
	}()
	var all sync.WaitGroup
	made, failed := 0, 0
	var mu sync.Mutex
	for i := range many {
		all.Go(func() {
			for round := range rounds {
				name := fmt.Sprintf("pod%d-%d", i, round)
				err := r.run(name)
				mu.Lock()
				if err == nil {
					made++
				} else {
					failed++
				}
				mu.Unlock()
				_ = r.remove(name)
			}
		})
	}
	all.Wait()
	close(stop)
	n := <-killed
	t.Logf("%d pods made, %d not; %d times a plugin was killed, %d times the agent", made, failed, n[0], n[1])
	for i := range many {
		for round := range rounds {
			if err := r.remove(fmt.Sprintf("pod%d-%d", i, round)); err != nil {
				t.Error(err)
			}
		}
	}
}
