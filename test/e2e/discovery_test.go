package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// dnsAddress is the address of a DNS server on the loopback device.
const dnsAddress = "127.77.0.53"

// TestRDMADiscovery starts a host that is configured only with the SRV record of its I/O unit,
// before there is a DNS server. The host has to report the error, and to connect when the server is
// up. The next process has to connect without a DNS server.
func TestRDMADiscovery(t *testing.T) {
	testenv.NeedTools(t, "unshare", "mount")
	if _, err := os.Stat("/etc/resolv.conf"); err != nil {
		testenv.Missing(t, "resolv.conf", "%v: nothing to mount another one over", err)
	}
	r := newFixture(t, "macvtap")
	dns := testenv.NewDNS(t, "", dnsAddress)
	conf := dns.ResolvConf()
	n := r.makeHost(t)
	args := append([]string{
		"host", "--device", hostDevice, "--iounit", "srv:_splitnic._tcp.fabric.example", "--name", "sn0", "--netns", n.ns,
		"--host-name", n.name, "--peer-timeout", "10s", "--state", r.dir,
	}, security(false, r.keys.host, "unit="+r.keys.unitPrint)...)
	ownResolvConf := func(c *exec.Cmd) {
		shell := []string{"unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/resolv.conf; exec "$@"`, conf}
		path, err := exec.LookPath(shell[0])
		if err != nil {
			t.Fatal(err)
		}
		c.Path, c.Args = path, append(append(shell, c.Path), c.Args[1:]...)
	}
	start := func() {
		log := filepath.Join(r.dir, n.name+".log")
		n.daemon = startAs(t, ownResolvConf, r.bin, r.socket(n.name, "host-sn0"), log, args...)
	}
	start()
	var s host.Status
	eventually(t, func() bool { return n.statusInto(&s) && s.LastError != "" }, "no error about a DNS that is not there")
	testenv.Explained(t, s.LastError)
	dns.Serve("srv-host=_splitnic._tcp.fabric.example,unit.fabric.example,7580,10,5",
		"host-record=unit.fabric.example,"+unitAddress)
	n.ready()
	ping(t, n.ns, addr(0), 5, 56)
	s = host.Status{} // decoding leaves fields unchanged that the answer omits
	if !n.statusInto(&s) || s.IOUnit.Address != "unit.fabric.example:7580" || len(s.IOUnit.DNS) != 1 ||
		s.IOUnit.DNS[0].Error != "" {
		t.Errorf("%+v", s.IOUnit)
	}

	// The next process, which has no DNS server, finds the I/O unit's address in the state
	// directory, where this process has written it.
	kept := filepath.Join(r.dir, "dns", "_splitnic._tcp.fabric.example.json")
	eventually(t, func() bool {
		text, err := os.ReadFile(kept)
		return err == nil && strings.Contains(string(text), unitAddress)
	}, "the address of the I/O unit in %s", kept)
	dns.Stop()
	n.kill()
	start()
	n.waitCarrier(true)
	s = host.Status{}
	if !n.statusInto(&s) || s.IOUnit.Address != "unit.fabric.example:7580" || len(s.IOUnit.DNS) != 1 ||
		!s.IOUnit.DNS[0].Kept || s.IOUnit.DNS[0].Error == "" {
		t.Errorf("without DNS: %+v", s.IOUnit)
	}
}
