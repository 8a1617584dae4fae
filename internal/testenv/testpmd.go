package testenv

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Testpmd runs testpmd of DPDK with one virtual device until stop is called, or the test ends.
// testpmd sends each frame back through the device. It needs no huge pages.
func Testpmd(t testing.TB, device string, options ...string) (stop func()) {
	t.Helper()
	return TestpmdOf(t, []string{device}, append([]string{"--port-topology=loop"}, options...)...)
}

// TestpmdOf is Testpmd for several devices. The options specify how frames are forwarded between
// them.
func TestpmdOf(t testing.TB, devices []string, options ...string) (stop func()) {
	t.Helper()
	NeedTools(t, "dpdk-testpmd")
	args := []string{"--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry", "-l", "0,1"}
	for _, d := range devices {
		args = append(args, "--vdev="+d)
	}
	args = append(args, "--", "--no-mlockall", "--total-num-mbufs=4096", "--nb-cores=1", "--auto-start", "--no-flush-rx",
		"--interactive")
	c := exec.Command("dpdk-testpmd", append(args, options...)...)
	out := &bytes.Buffer{}
	c.Stdout, c.Stderr = out, out
	c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		if c.ProcessState != nil {
			return
		}
		_, err := io.WriteString(in, "quit\n")
		late := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
		failed := c.Wait()
		late.Stop()
		if t.Failed() || err != nil || failed != nil {
			t.Log(fmt.Sprint("testpmd: ", err, ", ", failed, "\n", out))
		}
	}
	t.Cleanup(stop)
	return stop
}
