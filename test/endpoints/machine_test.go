package endpoints

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// machinePatience bounds how long an emulated machine takes to boot, or to carry out a command, on
// a busy computer.
const machinePatience = 2 * time.Minute

// kernelCommandLine is the command line of the kernel.
const kernelCommandLine = "console=ttyS0 panic=-1 no_timer_check quiet"

// machineFiles has the files and the socket of a virtual machine with Linux and emulated processors. The
// kernel is that of ci/softroce. Process 1 is the program internal/vm/guest.
type machineFiles struct {
	Kernel, Disk string // Disk is the initial RAM disk
	Console      string // file for the output of the first serial port
	Control      string // socket to which the second serial port connects

	listener *net.UnixListener
}

// prepareMachine creates the files of a machine in dir. The caller removes dir. root is the
// directory of the module.
func prepareMachine(root, dir string) (*machineFiles, error) {
	cmd := exec.Command(filepath.Join(root, "ci/softroce/kernel"))
	said := &bytes.Buffer{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, said)
	}
	of := strings.Split(strings.TrimSpace(string(out)), "\n")
	f := &machineFiles{
		Kernel: of[0], Disk: filepath.Join(dir, "disk"), Console: filepath.Join(dir, "console"),
		Control: filepath.Join(dir, "control"),
	}
	program := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-ldflags=-s", "-o", program, "./internal/vm/guest")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", build, err, said)
	}
	disk, err := ramDisk(program, of[1], of[2])
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(f.Disk, disk, 0o600); err != nil {
		return nil, err
	}
	f.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: f.Control, Net: "unix"})
	return f, err
}

// Close ends a call of Up, and closes the socket.
func (f *machineFiles) Close() error { return f.listener.Close() }

// ramDisk returns an initial RAM disk with the program as process 1, and the kernel modules
// that it needs.
func ramDisk(program, release, modules string) ([]byte, error) {
	d := &archive{}
	if err := d.addFile("init", program, 0o100755); err != nil {
		return nil, err
	}
	for _, name := range []string{"dev", "mod", "tmp"} {
		d.add(name, nil, 0o40755)
	}
	has := map[string]bool{}
	for _, m := range []string{"virtio_pci", "virtio_net"} {
		out, err := exec.Command("modprobe", "-d", modules, "-S", release, "--show-depends", m).Output()
		if err != nil {
			return nil, fmt.Errorf("what the module %s needs: %w", m, err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			file := f[len(f)-1]
			if f[0] != "insmod" || has[file] {
				continue
			}
			if err := d.addFile(fmt.Sprintf("mod/%02d-%s", len(has), filepath.Base(file)), file, 0o100644); err != nil {
				return nil, err
			}
			has[file] = true
		}
	}
	d.add("TRAILER!!!", nil, 0)
	return d.Bytes(), nil
}

// archive is a cpio archive in the format newc. A file is 13 numbers, the name and the
// content, each padded to 4 bytes.
type archive struct{ bytes.Buffer }

func (a *archive) add(name string, content []byte, mode int) {
	fmt.Fprintf(a, "070701%08X%08X%016X%08X%08X%08X%032X%08X%08X%s\x00",
		0, mode, 0, 1, 0, len(content), 0, len(name)+1, 0, name)
	a.Write(make([]byte, -a.Len()&3))
	a.Write(content)
	a.Write(make([]byte, -a.Len()&3))
}

func (a *archive) addFile(name, file string, mode int) error {
	content, err := os.ReadFile(file)
	a.add(name, content, mode)
	return err
}

// emulator is a running QEMU.
type emulator struct {
	said bytes.Buffer
	kill func()
}

// Start starts a machine with these devices. They can share its memory, which has the
// identifier "mem". The emulator runs in network namespace ns, with file as descriptor 3.
func (f *machineFiles) Start(ns, file string, devices ...string) (*emulator, error) {
	const memory = "256M"
	cmd := exec.Command("ip", append([]string{
		"netns", "exec", ns, "sh", "-c", `exec "$@" 3<>"$0"`, file, "qemu-system-x86_64",
		"-M", "q35,memory-backend=mem", "-m", memory, "-object", "memory-backend-memfd,id=mem,share=on,size=" + memory,
		"-accel", "tcg,thread=multi", "-smp", "2", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", f.Kernel, "-initrd", f.Disk, "-append", kernelCommandLine,
		"-serial", "file:" + f.Console, "-serial", "unix:" + f.Control,
	}, devices...)...)
	e := &emulator{}
	cmd.Stdout, cmd.Stderr = &e.said, &e.said
	e.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return e, cmd.Start()
}

// Kill kills the emulator and returns its output.
func (e *emulator) Kill() string {
	e.kill()
	return e.said.String()
}

// bootedMachine is a machine that has booted and takes commands. See the program guest.
type bootedMachine struct {
	control net.Conn
	answers *bufio.Reader
}

// Up waits until the started machine has booted.
func (f *machineFiles) Up() (*bootedMachine, error) {
	if err := f.listener.SetDeadline(time.Now().Add(machinePatience)); err != nil {
		return nil, err
	}
	c, err := f.listener.Accept()
	if err != nil {
		return nil, fmt.Errorf("a virtual machine does not come up: %w", err)
	}
	m := &bootedMachine{control: c, answers: bufio.NewReader(c)}
	if err := m.expect("coming up"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return m, nil
}

// Close closes the connection. The machine then ends.
func (m *bootedMachine) Close() error { return m.control.Close() }

// Tell has the machine carry out a command.
func (m *bootedMachine) Tell(command string) error {
	if _, err := fmt.Fprintln(m.control, command); err != nil {
		return err
	}
	return m.expect(command)
}

// expect waits for the answer to a command.
func (m *bootedMachine) expect(to string) error {
	if err := m.control.SetDeadline(time.Now().Add(machinePatience)); err != nil {
		return err
	}
	if answer, err := m.answers.ReadString('\n'); answer != "ok\n" || err != nil {
		return errors.Join(fmt.Errorf("a virtual machine, %s: %q", to, answer), err)
	}
	return nil
}
