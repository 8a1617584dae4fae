package endpoints

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// libvirt is a separate libvirtd for the test, with its own files, in a network namespace.
type libvirt struct {
	t   *testing.T
	uri string
}

func newLibvirt(t *testing.T, ns string) *libvirt {
	t.Helper()
	testenv.NeedTools(t, "libvirtd", "virsh", "ip", "unshare", "mount")
	dir := t.TempDir()
	etc := filepath.Join(dir, "etc")
	if err := os.Mkdir(etc, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		// The guest runs as root, in the control groups and namespaces of the test: others may not
		// be available here.
		"qemu.conf": `security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = []
namespaces = []
remember_owner = 0
stdio_handler = "file"
`,
		"libvirtd.conf": fmt.Sprintf("unix_sock_dir = %q\n", dir),
		"passwd":        "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin\n",
		"group":         "libvirt-qemu:x:64055:\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const script = `set -e
for d in /run /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
	mkdir -p "$d"
	mount -t tmpfs none "$d"
done
mkdir -p /etc/libvirt
mount --bind "$1" /etc/libvirt
# libvirtd looks for the user and the group of Debian's guests before it reads qemu.conf.
# Without libvirt-daemon-system there are none.
for f in passwd group; do
	cat "/etc/$f" "$1/$f" >"/run/$f"
	mount --bind "/run/$f" "/etc/$f"
done
exec libvirtd`
	// libvirtd runs until the guest has been destroyed, and so longer than the test's context.
	daemon := exec.Command("ip", "netns", "exec", ns, "unshare", "--mount", "sh", "-c", script, "sh", etc)
	said := &bytes.Buffer{}
	daemon.Stdout, daemon.Stderr = said, said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
		if t.Failed() {
			t.Logf("libvirtd: %s", said)
		}
	})
	l := &libvirt{t: t, uri: "qemu:///system?socket=" + filepath.Join(dir, "libvirt-sock")}
	testenv.Eventually(t, func() bool { return l.virsh("version").Run() == nil }, "libvirtd does not answer")
	return l
}

func (l *libvirt) virsh(args ...string) *exec.Cmd {
	return exec.Command("virsh", append([]string{"--quiet", "--connect", l.uri}, args...)...)
}

// boot starts a guest with the network interface iface, an element of libvirt's domain XML format.
func (l *libvirt) boot(iface string) *virtualMachine {
	l.t.Helper()
	g := newGuest(l.t)
	quote := func(s string) string {
		b := &bytes.Buffer{}
		_ = xml.EscapeText(b, []byte(s)) // writing to a Buffer does not fail
		return b.String()
	}
	domain := filepath.Join(filepath.Dir(g.Disk), "domain.xml")
	// QEMU 7.2 without KVM crashes with a segmentation fault if MSI-X is used with vhost-user.
	err := os.WriteFile(domain, fmt.Appendf(nil, `<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>vm1</name><memory unit='MiB'>256</memory><vcpu>2</vcpu>
<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
<os><type machine='q35'>hvm</type><kernel>%s</kernel><initrd>%s</initrd><cmdline>%s</cmdline></os>
<features><acpi/></features><on_reboot>destroy</on_reboot>
<devices>
<serial type='file'><source path='%s'/></serial>
<serial type='unix'><source mode='connect' path='%s'/></serial>
<memballoon model='none'/>
%s
</devices>
<qemu:override><qemu:device alias='net0'><qemu:frontend>
<qemu:property name='vectors' type='unsigned' value='0'/>
</qemu:frontend></qemu:device></qemu:override>
</domain>`, quote(g.Kernel), quote(g.Disk), kernelCommandLine, quote(g.Console), quote(g.Control), iface), 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	if out, err := l.virsh("create", domain).CombinedOutput(); err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
	l.t.Cleanup(func() {
		if out, err := l.virsh("destroy", "vm1").CombinedOutput(); err != nil {
			l.t.Errorf("%v\n%s", err, out)
		}
	})
	return up(l.t, g)
}
