package lan_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// TestSwitchSpec parses valid and invalid specifications of a switch in user space.
func TestSwitchSpec(t *testing.T) {
	for spec, ok := range map[string]bool{
		"vhost-user:/run/x": true, "vhost-user:/run/x,client": true, "vhost-user:/run/x,mtu=9000,client": true,
		"vhost-user:run": false, "vhost-user:": false, "vhost-user:/run/x,server": false,
		"vhost-user:/run/x,mtu=67": false, "vhost-user:/run/x,mtu=": false, "vhost-user:/run/x,mtu=1e9": false,
		"vhost-user:/" + strings.Repeat("x", 88): true, "vhost-user:/" + strings.Repeat("x", 89): false,
	} {
		_, _, err := lan.ParseSpec(spec)
		if (err == nil) != ok {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// TestErrdocSwitch opens ports of a switch in user space that cannot work, and expects documented
// errors.
func TestErrdocSwitch(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	first, err := lan.Open("vhost-user:"+dir, lan.Config{MAC: mac, Offloads: vnet.AllOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	for name, c := range map[string]struct {
		spec string
		cfg  lan.Config
	}{
		"no directory": {"vhost-user:" + dir + "/none", lan.Config{}},
		"a file":       {"vhost-user:" + file, lan.Config{}},
		"in use":       {"vhost-user:" + dir, lan.Config{MAC: mac}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := lan.Open(c.spec, c.cfg)
			if err == nil {
				p.Close()
				t.Fatal("no error")
			}
			testenv.Explained(t, err.Error())
		})
	}
}

// TestSwitchLatency requests a latency queue for a port of a switch in user space. It expects
// ErrUnavailable, after which an I/O unit continues without a latency queue.
func TestSwitchLatency(t *testing.T) {
	rule := &steer.Rule{Classes: steer.DefaultClasses(), Queues: 2, Limit: 1500}
	_, err := lan.Open("vhost-user:"+t.TempDir(), lan.Config{Latency: rule, Queues: 2})
	if !errors.Is(err, steer.ErrUnavailable) {
		t.Error(err)
	}
}
