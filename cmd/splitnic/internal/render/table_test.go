package render

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/printable"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/vhostuser"
)

// table returns the status table of some daemons, and expects its lines to be short enough.
func table(t *testing.T, all ...Status) string {
	t.Helper()
	var b strings.Builder
	if err := Table(&b, all, now); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return b.String()
}

// now is the time at which the tables are printed. past returns the time ago before it.
var now = time.Unix(1_800_000_000, 0)

func past(ago time.Duration) time.Time { return now.Add(-ago) }

func someHost(name string) *daemon.HostStatus {
	return &daemon.HostStatus{Card: "sn0", Status: host.Status{
		Role: "host", Name: name, State: host.Connected, Since: past(3*time.Hour + 150*time.Second),
		Netdevice: host.NetdeviceStatus{Name: "sn0", MTU: 1500, Carrier: true},
		IOUnit:    host.IOUnitStatus{Address: "10.0.0.1", Name: "gw1"},
	}}
}

func someUnit(hosts int) *daemon.UnitStatus {
	s := &daemon.UnitStatus{Status: iounit.Status{
		Role: "iounit", Name: "gw1", Device: "mlx5_0", Since: past(50*time.Hour + time.Minute),
		LAN:    iounit.LANStatus{Up: true, MTU: 1500, SpeedMbps: 25_000},
		Memory: iounit.MemoryStatus{Used: 3 << 20, Limit: 64 << 20},
	}}
	for i := range hosts {
		s.Hosts = append(s.Hosts, iounit.HostStatus{
			Name: fmt.Sprintf("h%02d", i), Address: fmt.Sprintf("10.0.0.%d:4711", i), MAC: fmt.Sprintf("02:00:00:00:00:%02x", i),
			MTU: 1500, Up: true, Since: past(30 * time.Minute),
			Statistics: protocol.Statistics{TxBytes: 1_234_567, RxBytes: 999_999_999_999, TxSource: 33, RxFiltered: 1000},
			Dropped:    guard.Dropped{NestedTags: 12_000},
		})
	}
	return s
}

// TestEscapeSequences prints names and errors with escape sequences, which must not reach a terminal.
func TestEscapeSequences(t *testing.T) {
	const evil = "sn\x1b[2J\u009b1m\xff"
	h, u := someHost(evil), someUnit(1)
	h.State, h.LastError, h.Netdevice.Name, h.IOUnit.Name = host.Connecting, evil, evil, evil
	u.Hosts[0].Name = evil
	all := []Status{{Host: h}, {Unit: u}}
	var b strings.Builder
	if err := Details(&b, all); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"table": table(t, all...), "details": b.String(), "top": Cut(evil, 20)} {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.ReplaceAll(line, "\t", ""); !printable.Is(line) {
				t.Errorf("%s: %q", what, line)
			}
		}
		if !strings.Contains(text, "sn?[2J?1m?") {
			t.Errorf("the name is not in the %s: %q", what, text)
		}
	}
}

// TestTable prints a typical status of two hosts and an I/O unit.
func TestTable(t *testing.T) {
	beta := someHost("beta")
	beta.Card, beta.Netdevice.Name = "web", "eth0"
	beta.State, beta.Netdevice.Carrier, beta.Since = host.Connecting, false, past(10*time.Second)
	beta.IOUnit.Name, beta.LastError = "", "connect to 10.0.0.1:7580:\nconnection refused; is the I/O unit there?"
	alpha := someHost("alpha")
	alpha.Direct.Connections = []direct.ConnectionStatus{{State: direct.Established}, {State: direct.Opening}}
	unit := someUnit(1)
	unit.Refused = 5
	const want = `CARD  HOST   STATE       FOR   NETDEV  CARRIER  MTU   I/O UNIT  DIRECT  NOTE
sn0   alpha  connected   3h2m  sn0     up       1500  gw1       1       -
web   beta   connecting  10s   eth0    down     1500  10.0.0.1  -       connect to 10.0.0.1:7580: c…

I/O UNIT  LAN  SPEED   FOR   MTU   HOSTS  DEVICE  MEMORY         NOTE
gw1       up   25Gbit  2d2h  1500  1      mlx5_0  3MiB of 64MiB  5 refused
  HOST  ADDRESS   MAC                FOR  MTU   TO LAN    FROM LAN  DROPPED
  h00   10.0.0.0  02:00:00:00:00:00  30m  1500  1.177MiB  931.3GiB  12.03k
`
	if got := table(t, Status{Host: alpha}, Status{Host: beta}, Status{Unit: unit}); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := table(t); got != "" {
		t.Errorf("of nobody: %q", got)
	}
}

// TestTableIsShort prints an I/O unit with many hosts, also with names of the maximal length.
func TestTableIsShort(t *testing.T) {
	unit := someUnit(64)
	text := table(t, Status{Unit: unit})
	if n := strings.Count(text, "\n"); n > 70 {
		t.Errorf("%d lines", n)
	}
	for i := range unit.Hosts {
		h := &unit.Hosts[i]
		if !strings.Contains(text, h.MAC) || !strings.Contains(text, h.Name+" ") {
			t.Errorf("%s is not in\n%s", h.Name, text)
		}
		h.Name, h.Insecure, h.Up = strings.Repeat("n", 253), true, false
		h.Address = "[2001:db8:1111:2222:3333:4444:5555:6666%enp65s0f0np0]:65535"
		h.Since, h.MTU = past(400*24*time.Hour-time.Minute), 65535
	}
	unit.Name, unit.Device, unit.LAN.Error = strings.Repeat("u", 253), strings.Repeat("d", 15), strings.Repeat("e", 300)
	long := someHost(strings.Repeat("h", 253))
	long.IOUnit.Name, long.Netdevice.Name, long.Netdevice.MTU = strings.Repeat("u", 253), strings.Repeat("d", 15), 65535
	long.State, long.LastError, long.Since = host.Connecting, strings.Repeat("é", 300), past(400*24*time.Hour-time.Minute)
	long.Direct.Connections = []direct.ConnectionStatus{{State: direct.Established}}
	table(t, Status{Unit: unit}, Status{Host: long}) // checks the width of the lines
}

// TestTableLongNames prints hosts whose long names have the same beginning. It expects that they
// can be distinguished.
func TestTableLongNames(t *testing.T) {
	unit := someUnit(3)
	for i := range unit.Hosts {
		h := &unit.Hosts[i]
		h.Name = "cni-" + strings.Repeat("0123456789abcdef", 4) + "-hash" + strconv.Itoa(i)
		h.Address = "[2001:db8:1111:2222:3333:4444:5555:6666%enp65s0f0np0]:65535"
	}
	text := table(t, Status{Unit: unit})
	for i := range unit.Hosts {
		end := "hash" + strconv.Itoa(i) + " "
		if !strings.Contains(text, "  cni-") || !strings.Contains(text, "…") || strings.Count(text, end) != 1 {
			t.Errorf("host %d is not to be found in\n%s", i, text)
		}
	}
}

// TestTableNotes expects a note in the line of a host for each problem.
func TestTableNotes(t *testing.T) {
	const name = "_splitnic._tcp.fabric.example"
	failing := []discovery.Status{{Name: name, Error: "SRV records of " + name + ": DNS server 10.0.0.53:53: refused"}}
	for want, change := range map[string]func(*daemon.HostStatus){
		"the I/O unit's link is down":  func(s *daemon.HostStatus) { s.Netdevice.Carrier = false },
		"INSECURE":                     func(s *daemon.HostStatus) { s.IOUnit.Insecure = true },
		"its own key is REVOKED":       func(s *daemon.HostStatus) { s.Security.OwnRevoked = true },
		"its certificate is NOT VALID": func(s *daemon.HostStatus) { s.Security.Expires = past(time.Hour) },
		"reload FAILED: policy.yaml:1": func(s *daemon.HostStatus) { s.Security.Reload.Error = "policy.yaml:1" },
		"nobody is at the vhost-user":  func(s *daemon.HostStatus) { s.Port = &vhostuser.Status{} },
		"the I/O unit drains":          func(s *daemon.HostStatus) { s.IOUnit.Drains = true },
		"stays, I/O unit drains: alone": func(s *daemon.HostStatus) {
			s.IOUnit.Drains, s.IOUnit.Stays = true, "alone"
		},
		"stays, I/O unit drains: alone; DNS: ": func(s *daemon.HostStatus) {
			s.IOUnit.Drains, s.IOUnit.Stays, s.IOUnit.DNS = true, "alone", failing
		},
		"gw1       DNS: server 10.0.0.53:53: refused": func(s *daemon.HostStatus) { s.IOUnit.DNS = failing },
		"10.0.0.1  DNS: server 10.0.0.53:53: refused": func(s *daemon.HostStatus) {
			s.State, s.LastError, s.IOUnit.DNS, s.IOUnit.Name = host.Connecting, failing[0].Error, failing, ""
		},
		"10.0.0.1  no answer\n": func(s *daemon.HostStatus) {
			s.State, s.LastError, s.IOUnit.DNS, s.IOUnit.Name = host.Connecting, "no answer", failing, ""
		},
		"no standby: because":          func(s *daemon.HostStatus) { s.Failovers.NoStandby = "because" },
		"refused: MAC 02:00…: denied":  func(s *daemon.HostStatus) { s.LastRefusal = refusal("MAC", "02:00…", "denied") },
		"sn0     up       1500  gw1\n": func(*daemon.HostStatus) {},
		"sn0     up       1500  gw2\n": func(s *daemon.HostStatus) { s.IOUnit.Name, s.LastError = "gw2", "was before" },
		"connected  3h2m  sn0     up":  func(s *daemon.HostStatus) { s.Failovers.Last = &uplink.Failover{} },
		"connecting  3h2m  sn0     up": func(s *daemon.HostStatus) { s.State = host.Connecting },
	} {
		h := someHost("alpha")
		change(h)
		if got := table(t, Status{Host: h}); !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	u := someUnit(1)
	u.LAN.Up, u.LAN.SpeedMbps, u.Hosts[0].Up, u.Hosts[0].Insecure = false, 0, false, true
	if got := table(t, Status{Unit: u}); !strings.Contains(got, "gw1       down  2d2h") ||
		!strings.Contains(got, "INSECURE; set down") {
		t.Errorf("\n%s", got)
	}
}

func refusal(what, wanted, why string) *mirror.Rejection {
	return &mirror.Rejection{What: what, Wanted: wanted, Reason: why}
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Second, "119s": 119 * time.Second, "2m": 2 * time.Minute, "59m59s": time.Hour - time.Second,
		"23h59m": 24*time.Hour - time.Second, "1d": 24 * time.Hour, "400d23h": 401*24*time.Hour - time.Minute,
	} {
		if got := duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
