//go:build cgo

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

const (
	nbdDevice = "/dev/nbd0"
	nbdSize   = "/sys/block/nbd0/size" // in sectors of 512 bytes
	nbdPID    = "/sys/block/nbd0/pid"  // exists while the device is served
)

// TestRDMADirectedDisk has a file system on the disk of another machine: three devices, and the
// kernel's block device. A file is written, the file system is unmounted, the requester leaves and
// comes back, and the file is read. No data pass through the owner's port.
func TestRDMADirectedDisk(t *testing.T) {
	names := testenv.NeedRDMA(t, 3)
	testenv.NeedRoot(t)
	testenv.NeedTools(t, "mkfs.ext4", "mount", "umount", "modprobe")
	if out, err := exec.Command("modprobe", "-a", "nbd", "ext4").CombinedOutput(); err != nil {
		testenv.Missing(t, "tools", "no module nbd or ext4: %v: %s", err, out)
	}
	path := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	unitListener, ownerListener := listen(t), listen(t)
	ended := make(chan error, 2)
	play := func(name string, serve func(fabric.Device) error) {
		dev, err := verbs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			err := serve(dev)
			if cerr := dev.Close(); err == nil {
				err = cerr
			}
			ended <- err
		}()
	}
	play(names[2], func(dev fabric.Device) error { return serveUnit(ctx, dev, unitListener, path) })
	play(names[1], func(dev fabric.Device) error {
		return serveOwner(ctx, dev, ownerListener, unitListener.Addr().String(), false)
	})
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})

	content := make([]byte, 3<<20)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(content); i++ {
		content[i] = byte(r.Uint32())
	}
	dir := t.TempDir()
	tool := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	before := wire(t, names[1])
	attached(t, names[0], ownerListener, func() {
		tool("mkfs.ext4", "-q", nbdDevice)
		tool("mount", nbdDevice, dir)
		if err := os.WriteFile(filepath.Join(dir, "file"), content, 0o600); err != nil {
			t.Error(err)
		}
		tool("umount", dir)
	})
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(b, content[:4096]) {
		t.Errorf("the disk of the I/O unit does not have what was written: %v", err)
	}
	attached(t, names[0], ownerListener, func() {
		tool("mount", "-o", "ro", nbdDevice, dir)
		got, err := os.ReadFile(filepath.Join(dir, "file"))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("the file that was written is not the one that is read: %v", err)
		}
		tool("umount", dir)
	})
	through := wire(t, names[1]) - before
	t.Logf("%d bytes on the owner's wire, for a file of %d bytes that was written and read", through, len(content))
	if through > uint64(len(content))/4 {
		t.Errorf("%d bytes on the owner's wire, for a file of %d bytes that was written and read", through, len(content))
	}
}

// attached calls use while the requester serves the block device.
func attached(t *testing.T, device string, owner net.Listener, use func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"requester", "-d", device, "-nbd", nbdDevice, owner.Addr().String()})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the requester: %v", err)
		}
	}()
	testenv.Eventually(t, func() bool {
		b, err := os.ReadFile(nbdSize)
		_, serves := os.Stat(nbdPID)
		return err == nil && serves == nil && strings.TrimSpace(string(b)) != "0" || len(ended) != 0
	}, "%s is not there", nbdDevice)
	if len(ended) == 0 {
		use()
	}
}

// wire returns the number of bytes that the port of an RDMA device has sent and received.
func wire(t *testing.T, device string) (sum uint64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", device))
	if err != nil {
		t.Fatal(err)
	}
	for _, counter := range []string{"rx_bytes", "tx_bytes"} {
		c, err := os.ReadFile(filepath.Join("/sys/class/net", strings.TrimSpace(string(b)), "statistics", counter))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(c)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
