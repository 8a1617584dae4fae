package endpoints

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// virtualMachine is a guest in which the program guest obeys.
type virtualMachine struct {
	t       *testing.T
	control net.Conn
	answers *bufio.Reader
	kill    func() // ends the emulator at once
}

// bootBound is how long a guest may take to come up, emulated and beside other work.
const bootBound = 2 * time.Minute

// guestFiles are what a guest is made of.
type guestFiles struct {
	dir, kernel, disk string
	console, control  string // what its serial ports lead to: a file, and a socket that listens
	listener          *net.UnixListener
}

const guestCommandLine = "console=ttyS0 panic=-1 no_timer_check quiet"

func newGuest(t *testing.T) *guestFiles {
	t.Helper()
	testenv.NeedTools(t, "qemu-system-x86_64", "modprobe")
	kernel := exec.Command("../../ci/softroce/kernel")
	kernel.Stderr = t.Output()
	out, err := kernel.Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Split(strings.TrimSpace(string(out)), "\n")
	dir := t.TempDir()
	g := &guestFiles{
		dir: dir, kernel: f[0], disk: filepath.Join(dir, "disk"), console: filepath.Join(dir, "console"),
		control: filepath.Join(dir, "control"),
	}
	if err := os.WriteFile(g.disk, ramDisk(t, f[1], f[2]), 0o600); err != nil {
		t.Fatal(err)
	}
	if g.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: g.control, Net: "unix"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.listener.Close()
		if t.Failed() {
			said, _ := os.ReadFile(g.console)
			t.Logf("guest:\n%s", said)
		}
	})
	return g
}

// up waits until a guest that was started has come up.
func (g *guestFiles) up(t *testing.T) *virtualMachine {
	t.Helper()
	if err := g.listener.SetDeadline(time.Now().Add(bootBound)); err != nil {
		t.Fatal(err)
	}
	c, err := g.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	m := &virtualMachine{t: t, control: c, answers: bufio.NewReader(c)}
	m.expect("coming up")
	return m
}

// boot starts a guest with these devices, which share its memory "mem". The emulator has
// the network of a namespace, and descriptor 3 is that file.
func boot(t *testing.T, ns, file string, devices ...string) *virtualMachine {
	t.Helper()
	g := newGuest(t)
	const memory = "256M"
	vm := testenv.Command(t, ns, "sh", append([]string{"-c", `exec "$@" 3<>"$0"`, file, "qemu-system-x86_64",
		"-M", "q35,memory-backend=mem", "-m", memory, "-object", "memory-backend-memfd,id=mem,share=on,size=" + memory,
		"-accel", "tcg,thread=multi", "-smp", "2", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", g.kernel, "-initrd", g.disk, "-append", guestCommandLine,
		"-serial", "file:" + g.console, "-serial", "unix:" + g.control,
	}, devices...)...)
	said := &bytes.Buffer{}
	vm.Stdout, vm.Stderr = said, said
	if err := vm.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = vm.Process.Kill()
		_ = vm.Wait()
	})
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("QEMU: %s", said)
		}
	})
	m := g.up(t)
	m.kill = kill
	return m
}

// ramDisk makes an initial RAM disk with the program guest and the modules that it needs.
func ramDisk(t *testing.T, release, modules string) []byte {
	t.Helper()
	program := filepath.Join(t.TempDir(), "init")
	build := exec.Command("go", "build", "-o", program, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-ldflags=-s")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	disk := &bytes.Buffer{}
	add := func(name, file string, mode int) {
		var content []byte
		if file != "" {
			var err error
			if content, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		// The format newc of cpio: 13 numbers, the name and the content, each up to 4 bytes.
		fmt.Fprintf(disk, "070701%08X%08X%016X%08X%08X%08X%032X%08X%08X%s\x00",
			0, mode, 0, 1, 0, len(content), 0, len(name)+1, 0, name)
		disk.Write(make([]byte, -disk.Len()&3))
		disk.Write(content)
		disk.Write(make([]byte, -disk.Len()&3))
	}
	add("init", program, 0o100755)
	for _, d := range []string{"dev", "mod", "tmp"} {
		add(d, "", 0o40755)
	}
	n := 0
	for _, m := range []string{"virtio_pci", "virtio_net"} {
		out, err := exec.Command("modprobe", "-d", modules, "-S", release, "--show-depends", m).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			base := filepath.Base(f[len(f)-1])
			if f[0] == "insmod" && !bytes.Contains(disk.Bytes(), []byte("-"+base+"\x00")) {
				add(fmt.Sprintf("mod/%02d-%s", n, base), f[1], 0o100644)
				n++
			}
		}
	}
	add("TRAILER!!!", "", 0)
	return disk.Bytes()
}

// expect waits for an answer.
func (m *virtualMachine) expect(to string) {
	m.t.Helper()
	if err := m.control.SetDeadline(time.Now().Add(bootBound)); err != nil {
		m.t.Fatal(err)
	}
	if answer, err := m.answers.ReadString('\n'); answer != "ok\n" || err != nil {
		m.t.Fatalf("%s: %q, %v", to, answer, err)
	}
}

// tell has the guest do something.
func (m *virtualMachine) tell(command string) {
	m.t.Helper()
	if _, err := fmt.Fprintln(m.control, command); err != nil {
		m.t.Fatal(err)
	}
	m.expect(command)
}

// exchange sends n random bytes from a namespace to the guest by TCP, and compares what
// comes back, and what the guest has taken it for.
func exchange(ns, addr string, seed byte, n int64) error {
	var c net.Conn
	err := netns.Do(ns, func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(addr, "7000"), 30*time.Second)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent, got := sha256.New(), sha256.New()
	errs := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(c, sent), io.LimitReader(rand.NewChaCha8([32]byte{seed}), n))
		errs <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	m, err := io.CopyN(got, c, n)
	if err == nil {
		err = <-errs
	}
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", m, n, err)
	}
	of, err := io.ReadAll(c)
	if want := sent.Sum(nil); err != nil || !bytes.Equal(of, want) || !bytes.Equal(got.Sum(nil), want) {
		return fmt.Errorf("%d bytes arrive changed: %w", n, err)
	}
	return nil
}
