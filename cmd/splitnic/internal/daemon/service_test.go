package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap/steer"
)

// capNames has the capabilities that services have.
var capNames = map[string]int{
	"CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "CAP_NET_BROADCAST": unix.CAP_NET_BROADCAST,
	"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_IPC_LOCK": unix.CAP_IPC_LOCK,
	"CAP_SYS_NICE": unix.CAP_SYS_NICE, "CAP_BPF": unix.CAP_BPF, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN,
	"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE,
}

// service returns the settings of a service in deploy/systemd, in words.
func service(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../../deploy/systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set[key] = append(set[key], strings.Fields(value)...)
		}
	}
	return set
}

// TestServices compares the services with what the endpoints need: a service may have the privileges of
// all settings that do not concern other network namespaces or low ports, and no others.
func TestServices(t *testing.T) {
	common := Common{Latency: &steer.Classes{}}
	host := Host{Common: common}
	unit := capSet(0)
	for _, f := range lan.Kinds() {
		c := IOUnit{Common: common, Kind: f.Name, Listen: ":7580"}
		unit |= c.privileges().caps &^ caps(f.Elsewhere...)
	}
	hostCaps, agent := host.privileges().caps, Agent{Host: host}
	const queues = 4 // of each card, for which the store of an agent has room
	for name, want := range map[string]struct {
		caps       capSet
		namespaces string
		store      int // least number of descriptors
	}{
		"splitnic-host@.service":  {hostCaps, "yes", cq.MaxQueues},
		"splitnic-agent.service":  {agent.privileges().caps, "net", 256 * queues},
		"splitnic-iounit.service": {unit, "yes", 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := service(t, name)
			var got capSet
			for _, word := range set["CapabilityBoundingSet"] {
				n, known := capNames[word]
				if !known {
					t.Errorf("it has %s, which this test does not know", word)
				}
				got |= caps(n)
			}
			if got != want.caps {
				t.Errorf("it has the capabilities %#x, and the endpoint needs %#x", got, want.caps)
			}
			packets := want.caps&caps(unix.CAP_NET_RAW) != 0
			if slices.Contains(set["RestrictAddressFamilies"], "AF_PACKET") != packets {
				t.Errorf("it has the sockets %q, and CAP_NET_RAW: %t", set["RestrictAddressFamilies"], packets)
			}
			for key, value := range map[string]string{
				"RestrictNamespaces": want.namespaces, "RestartPreventExitStatus": strconv.Itoa(exit.Config),
				"Type": "notify", "NotifyAccess": "main", "Restart": "on-failure", "NoNewPrivileges": "yes",
				"RuntimeDirectory": "splitnic", "LimitMEMLOCK": "infinity",
			} {
				if got := strings.Join(set[key], " "); got != value {
					t.Errorf("%s is %q, and not %q", key, got, value)
				}
			}
			store, _ := strconv.Atoi(strings.Join(set["FileDescriptorStoreMax"], ""))
			if store < want.store {
				t.Errorf("the store has room for %d descriptors, and not %d", store, want.store)
			}
		})
	}
}
