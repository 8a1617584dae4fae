package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

const agentConfig = "device: " + hostDevice + "\niounit: " + unitAddress +
	"\ntrust-file: /etc/splitnic/iounits\nkey: /etc/keys/sn0.pem\nqueues: 1\npeer-timeout: 10s\n"

// agentService is an agent that runs as a service, with cards in network namespaces of the machine.
type agentService struct {
	*services
	agent service
	cards map[string]string // path of the network namespace on the machine, by the card's name
}

// in runs a program in the network namespace of a card.
func (s *agentService) in(card string, args ...string) string {
	s.t.Helper()
	return s.run(append([]string{"nsenter", "--net=" + s.cards[card], "--"}, args...)...)
}

// add makes a card, waits until it works, and gives it an address.
func (s *agentService) add(card, netns, addr string) {
	s.t.Helper()
	s.run("splitnic", "card", "add", card, "--netns", netns, "--netdev", "eth0")
	s.run("splitnic", "wait", card, "--connected", "--carrier", "--timeout", patience.String())
	s.in(card, "ip", "addr", "add", addr+"/24", "dev", "eth0")
}

// pod returns the path of a card's network namespace, as seen from outside.
func (s *agentService) pod(card string) string { return filepath.Join(s.root, s.cards[card]) }

// setting describes the netdevice of a card and its IPv4 addresses.
func (s *agentService) setting(card string) string {
	s.t.Helper()
	link := testenv.Link(s.t, s.pod(card), "eth0")
	if link == nil {
		return "missing"
	}
	a := link.Attrs()
	return fmt.Sprintf("index %d, %v, mtu %d, %s", a.Index, a.HardwareAddr, a.MTU,
		s.in(card, "ip", "-4", "-o", "addr", "show", "dev", "eth0"))
}

// same checks that the agent's present process has the same netdevices as the previous one, with
// their settings, and that frames pass.
func (s *agentService) same(t *testing.T, adopted int, before map[string]string) {
	t.Helper()
	for card := range s.cards {
		c := service{s.machine, s.agent.unit, "/run/splitnic/host-" + card + ".sock"}
		var h struct {
			State     string `json:"state"`
			Netdevice struct {
				Adopted int `json:"adopted"`
			} `json:"netdevice"`
		}
		eventually(t, func() bool {
			return c.statusInto(&h) && h.State == "connected" && h.Netdevice.Adopted == adopted
		}, "card %s with a session, taken over %d times; it is %+v", card, adopted, &h)
		if got := s.setting(card); got != before[card] {
			t.Errorf("the netdevice of %s was %s, and is %s", card, before[card], got)
		}
		s.in(card, "ping", "-c", "2", "-W", "10", addr(0))
	}
	if got, want := s.agent.show("NFileDescriptorStore"), strconv.Itoa(len(s.cards)); got != want {
		t.Errorf("%s descriptors are in the store, of %s cards with a queue each", got, want)
	}
}

// TestRDMASystemdAgent runs an agent under systemd. It adds cards in network namespaces that are made
// after the start of the agent, by name and by process. The netdevices, and a TCP connection through
// one of them, have to survive a restart and a kill.
func TestRDMASystemdAgent(t *testing.T) {
	services := newServices(t)
	s := &agentService{services: services, cards: map[string]string{},
		agent: service{services.machine, "splitnic-agent.service", "/run/splitnic/agent.sock"}}
	t.Cleanup(func() { _, _ = s.try("systemctl", "stop", s.agent.unit) })
	s.write("/etc/splitnic/agent.yaml", agentConfig)
	s.unit.do("start")
	s.agent.do("enable", "--now")
	for property, want := range map[string]string{
		"Type": "notify", "ActiveState": "active", "SubState": "running", "StatusText": "serving cards",
	} {
		if got := s.agent.show(property); got != want {
			t.Errorf("%s is %q, and not %q", property, got, want)
		}
	}

	s.run("ip", "netns", "add", "pod1")
	t.Cleanup(func() { _, _ = s.try("ip", "netns", "del", "pod1") })
	pid := strings.TrimSpace(s.run("bash", "-c", "unshare --net sleep infinity >/dev/null 2>&1 & echo $!"))
	t.Cleanup(func() { _, _ = s.try("kill", pid) })
	own := s.run("readlink", "/proc/self/ns/net")
	eventually(t, func() bool {
		is, err := s.try("readlink", "/proc/"+pid+"/ns/net")
		return err == nil && is != own
	}, "a process in a network namespace of its own")
	s.cards["web"], s.cards["proc"] = "/run/netns/pod1", "/proc/"+pid+"/ns/net"
	s.add("web", "pod1", addr(1))
	s.add("proc", s.cards["proc"], addr(2))

	before := map[string]string{}
	for card := range s.cards {
		before[card] = s.setting(card)
	}
	stream := startStreaming(t, s.lan, s.pod("web"), 20*time.Millisecond)
	stream.proceeds(t)
	t.Run("capabilities", func(t *testing.T) {
		const want = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_BROADCAST | 1<<unix.CAP_IPC_LOCK | 1<<unix.CAP_SYS_NICE |
			1<<unix.CAP_BPF | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
		for _, task := range tasks(t, s.agent.process()) {
			got, err := strconv.ParseUint(task["CapEff"], 16, 64)
			if err != nil || got != want || task["Seccomp"] != "2" || task["NoNewPrivs"] != "1" {
				t.Errorf("thread %s: %v, and not %#x", task["Pid"], task, uint64(want))
			}
		}
	})
	t.Run("exposure", func(t *testing.T) {
		out, err := s.try("systemd-analyze", "security", "--no-pager", "--threshold=35", s.agent.unit)
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	for adopted, c := range []struct {
		name string
		do   func()
	}{
		{"restart", func() { s.agent.do("restart") }},
		{"kill", func() {
			s.agent.kill()
			s.agent.is("NRestarts", "1")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			s.same(t, adopted+1, before)
			stream.proceeds(t)
		})
	}
	t.Logf("%d bytes, all of them right, in one connection", stream.finish(t))

	s.run("splitnic", "card", "del", "web")
	if got := s.agent.show("NFileDescriptorStore"); got != "1" {
		t.Errorf("%s descriptors are in the store, of one card", got)
	}
	s.agent.do("stop")
	for property, want := range map[string]string{
		"ActiveState": "inactive", "Result": "success", "StatusText": "", "NFileDescriptorStore": "0",
	} {
		if got := s.agent.show(property); got != want {
			t.Errorf("%s is %q, and not %q", property, got, want)
		}
	}
	for card := range s.cards {
		eventually(t, func() bool { return s.setting(card) == "missing" }, "the end of the netdevice of %s", card)
	}
	s.unit.do("stop")
	if left := s.run("ls", "/run/splitnic"); left != "" {
		t.Errorf("left in /run/splitnic: %s", left)
	}
}
