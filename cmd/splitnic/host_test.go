package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// parse parses a command line with the flags of add, and returns the result of config. Advanced
// settings are written like flags, and set like those.
func parse[T any](add func(*pflag.FlagSet), config func() (T, error), args ...string) (T, error) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	add(flags)
	if err := flags.Parse(args); err != nil {
		var none T
		return none, exit.Usagef("%w", err)
	}
	return config()
}

// flagCase is a command line with the change that it makes to the configuration, or a part of
// the expected error.
type flagCase[T any] struct {
	line   string
	change func(*T)
	err    string
}

// checkFlags parses the line of each case and expects base with the change of the case, or a
// usage error.
func checkFlags[T any](t *testing.T, parse func(args ...string) (T, error), base T, cases []flagCase[T]) {
	t.Helper()
	for _, c := range cases {
		got, err := parse(strings.Fields(c.line)...)
		if c.err != "" {
			if err == nil || exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.line, err, c.err)
			}
			continue
		}
		want := base
		if c.change != nil {
			c.change(&want)
		}
		if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.line, err, diff)
		}
	}
}

// commonDefaults returns the common configuration of both endpoints without flags.
func commonDefaults() daemon.Common {
	return daemon.Common{
		Version: version, Adapter: daemon.Adapter{Port: 1, GIDIndex: -1}, Keys: daemon.Keys{Key: defaultKey},
		Handlers: daemon.Handlers{Budget: cq.DefaultBudget, IRQ: daemon.IRQOff}, HandshakeTimeout: 10 * time.Second,
		Encrypt: seal.Allowed,
		Messaging: messaging.Config{
			KeepAlive: 500 * time.Millisecond, PeerTimeout: time.Second, PoolIdle: 10 * time.Second,
			PackCopy: messaging.DefaultPackCopy, MaxInline: messaging.DefaultInline, Timing: messaging.Config{}.Timing,
		},
	}
}

// commonCases returns cases for the flags that both endpoints have. of returns the common part
// of a configuration.
func commonCases[T any](of func(*T) *daemon.Common) []flagCase[T] {
	set := func(change func(c *daemon.Common)) func(*T) { return func(v *T) { change(of(v)) } }
	handlers := func(change func(h *daemon.Handlers)) func(*T) {
		return set(func(c *daemon.Common) { change(&c.Handlers) })
	}
	m := func(change func(m *messaging.Config)) func(*T) {
		return set(func(c *daemon.Common) { change(&c.Messaging) })
	}
	classes := func(change func(c *steer.Classes)) func(*T) {
		return set(func(c *daemon.Common) {
			x := steer.DefaultClasses()
			change(&x)
			c.Latency = &x
		})
	}
	return []flagCase[T]{
		{"", nil, ""},
		{"--config x --device rxe0 --gid-index 3",
			set(func(c *daemon.Common) { c.ConfigFile, c.Device, c.GIDIndex = "x", "rxe0", 3 }), ""},
		{"--status-socket /s --metrics :1", set(func(c *daemon.Common) { c.StatusSocket, c.Metrics = "/s", ":1" }), ""},
		{"--metrics :1 --metrics-config m", set(func(c *daemon.Common) { c.Metrics, c.MetricsConfig = ":1", "m" }), ""},
		{"--metrics-config m", nil, "--metrics-config m: there are no metrics"},
		{"--log-level debug --log-format json", set(func(c *daemon.Common) { c.LogLevel, c.LogJSON = -4, true }), ""},
		{"--log-level loud", nil, `"loud" must be debug, info, warn or error`},
		{"--log-format xml", nil, `--log-format "xml": must be text or json`},

		{"--keep-alive 1s --peer-timeout 4s",
			m(func(m *messaging.Config) { m.KeepAlive, m.PeerTimeout = time.Second, 4*time.Second }), ""},
		{"--handshake-timeout 3s", set(func(c *daemon.Common) { c.HandshakeTimeout = 3 * time.Second }), ""},
		{"--qp-timeout 20 --qp-retries 1",
			m(func(m *messaging.Config) { m.Timing.Timeout, m.Timing.RetryCount = 20, 1 }), ""},
		{"--peer-timeout 100ms",
			m(func(m *messaging.Config) { m.KeepAlive, m.PeerTimeout = 50*time.Millisecond, 100*time.Millisecond }), ""},
		{"--peer-timeout 5s", m(func(m *messaging.Config) { m.PeerTimeout = 5 * time.Second }), ""},
		{"--peer-timeout 100ms --keep-alive 500ms", nil, "--peer-timeout 100ms must exceed advanced.keep-alive 500ms"},
		{"--keep-alive -1s", nil, "which must be above 0"},
		{"--peer-timeout 0", nil, "which must be above 0"},
		{"--handshake-timeout 0", nil, "advanced.handshake-timeout 0s: must be above 0"},
		{"--qp-retries 7", nil, "advanced.qp-retries 7: must be 1 to 6"},
		{"--qp-timeout 32", nil, "advanced.qp-timeout 32: must be 1 to 31"},

		{"--max-pools 5 --pool-idle 1m", m(func(m *messaging.Config) { m.MaxPools, m.PoolIdle = 5, time.Minute }), ""},
		{"--max-pools 1", nil, "advanced.max-pools 1: must be 3 to"},
		{"--pool-idle 0", nil, "advanced.pool-idle 0s: must be above 0"},
		{"--protection one-touch", m(func(m *messaging.Config) { m.Protection = messaging.ProtectOneTouch }), ""},
		{"--encrypt required", set(func(c *daemon.Common) { c.Encrypt = seal.Required }), ""},
		{"--encrypt yes", nil, `"yes" must be required, allowed or no`},
		{"--ciphers aes-256-gcm", set(func(c *daemon.Common) { c.Ciphers = []seal.Cipher{seal.AES256GCM} }), ""},
		{"--ciphers des", nil, `unknown cipher "des"`},
		{"--protection glass", nil, `--protection "glass": must be region, window or one-touch`},

		{"--cq-moderation 16,50us", m(func(m *messaging.Config) {
			m.Moderation = messaging.Moderation{Count: 16, Period: 50 * time.Microsecond}
		}), ""},
		{"--cq-moderation 1,0", m(func(m *messaging.Config) { m.Moderation.Count = 1 }), ""},
		{"--cq-moderation 0,0", nil, ""},
		{"--pack-copy 80", m(func(m *messaging.Config) { m.PackCopy = 80 }), ""},
		{"--pack-copy 0", m(func(m *messaging.Config) { m.PackCopy = -1 }), ""},
		{"--inline 64", m(func(m *messaging.Config) { m.MaxInline = 64 }), ""},
		{"--inline 0", m(func(m *messaging.Config) { m.MaxInline = -1 }), ""},
		{"--pack-copy -1", nil, `"-1": must be 0 to 65535 bytes`},
		{"--pack-copy 65536", nil, `"65536": must be 0 to 65535 bytes`},
		{"--pack-copy some", nil, "--pack-copy"},
		{"--traffic-class 0x68 --service-level 3",
			m(func(m *messaging.Config) { m.TrafficClass, m.ServiceLevel = 0x68, 3 }), ""},
		{"--traffic-class 256", nil, "--traffic-class"},
		{"--ib-port 2 --gid-index 3 --pkey 0x8001",
			func(c *T) { of(c).Adapter = daemon.Adapter{Port: 2, GIDIndex: 3, PKey: 0x8001} }, ""},
		{"--ib-port 0", nil, `"0": must be 1 to 255`},
		{"--gid-index -1", nil, `"-1": must be 0 to 255`},
		{"--gid-index 256", nil, `"256": must be 0 to 255`},
		{"--gid-index first", nil, `"first": must be 0 to 255`},
		{"--pkey 0", nil, `"0": must be 0x0001 to 0xffff, and not 0x8000`},
		{"--pkey 0x8000", nil, `"0x8000": must be`},
		{"--pkey 0x10000", nil, `"0x10000": must be`},
		{"--pkey all", nil, `"all": must be`},
		{"--metrics 9580", nil, `--metrics "9580": must be ADDRESS:PORT`},
		{"--metrics :95800", nil, `--metrics ":95800": must be`},
		{"--metrics :", nil, `--metrics ":": must be`},
		{"--service-level 16", nil, "advanced.service-level 16: must be 0 to 15"},
		{"--cq-moderation 16", nil, "--cq-moderation"},
		{"--cq-moderation many,50us", nil, "--cq-moderation"},
		{"--cq-moderation 16,soon", nil, "--cq-moderation"},
		{"--cq-moderation 16,0", nil, "--cq-moderation"},
		{"--cq-moderation 65536,50us", nil, "--cq-moderation"},

		{"--latency-queue", classes(func(*steer.Classes) {}), ""},
		{"--latency-queue=no", set(func(c *daemon.Common) { c.Latency = nil }), ""},
		{"--latency-queue=perhaps", nil, `"perhaps" must be yes or no`},
		{"--latency-queue --latency-dscp af41,10,EF", classes(func(c *steer.Classes) { c.DSCP = 1<<34 | 1<<10 | 1<<46 }), ""},
		{"--latency-queue --latency-dscp none --latency-size 128",
			classes(func(c *steer.Classes) { c.DSCP, c.Size = 0, 128 }), ""},
		{
			"--latency-traffic-class 0xb8 --latency-service-level 4",
			m(func(m *messaging.Config) { m.LatencyTrafficClass, m.LatencyServiceLevel = 0xb8, 4 }), "",
		},
		{"--latency-dscp 64", nil, "advanced.latency-dscp"},
		{"--latency-dscp fast", nil, "advanced.latency-dscp"},
		{"--latency-size -1", nil, "advanced.latency-size -1: must be 0 to"},
		{"--latency-size 65536", nil, "advanced.latency-size 65536"},
		{"--latency-service-level 16", nil, "advanced.latency-service-level 16: must be 0 to 15"},
		{"--latency-traffic-class 256", nil, "--latency-traffic-class"},

		{"--handlers 2 --poll-budget 9", handlers(func(h *daemon.Handlers) { h.Number, h.Budget = 2, 9 }), ""},
		{"--spin 20us",
			set(func(c *daemon.Common) { c.Handlers.Spin, c.Messaging.Spin = 20*time.Microsecond, 20*time.Microsecond }), ""},
		{"--spin auto",
			set(func(c *daemon.Common) {
				c.Handlers.Spin, c.Handlers.Adaptive = 100*time.Microsecond, true
				c.Messaging.Spin, c.Messaging.SpinAdaptive = 100*time.Microsecond, true
			}), ""},
		{"--spin auto:1ms",
			set(func(c *daemon.Common) {
				c.Handlers.Spin, c.Handlers.Adaptive = time.Millisecond, true
				c.Messaging.Spin, c.Messaging.SpinAdaptive = time.Millisecond, true
			}), ""},
		{"--handler-cpus 0-2,8", handlers(func(h *daemon.Handlers) { h.Spread = cpus.List{0, 1, 2, 8} }), ""},
		{"--handler-cpus 0=1,2=0-1,3",
			handlers(func(h *daemon.Handlers) { h.CPUs = map[int]cpus.List{0: {1}, 2: {0, 1, 3}} }), ""},
		{"--handler-priority latency", handlers(func(h *daemon.Handlers) { h.Priority = -10 }), ""},
		{"--handler-priority 0=3,2=normal",
			handlers(func(h *daemon.Handlers) { h.Priorities = map[int]int{0: 3, 2: 0} }), ""},
		{"--irq-affinity follow", handlers(func(h *daemon.Handlers) { h.IRQ = daemon.IRQFollow }), ""},
		{"--irq-affinity set", handlers(func(h *daemon.Handlers) { h.IRQ = daemon.IRQSet }), ""},
		{"--irq-affinity on", nil, "must be off, follow or set"},
		{"--handlers -1", nil, "advanced.handlers -1"},
		{"--handlers 33", nil, "must be 1 to 32"},
		{"--poll-budget 0", nil, "advanced.poll-budget 0"},
		{"--spin -1s", nil, "-1s: must be 0s to 1s"},
		{"--spin 1h", nil, "0s to 1s"},
		{"--spin auto:0s", nil, "1µs to 1s"},
		{"--spin automatic", nil, "such as auto:50us"},
		{"--spin auto:", nil, "such as auto:50us"},
		{"--handler-cpus first", nil, `advanced.handler-cpus: "first" is no processor`},
		{"--handler-cpus 1=first", nil, "handler 1"},
		{"--handler-cpus x=1", nil, `"x" is no number`},
		{"--handler-cpus 1,1=1", nil, "has no number"},
		{"--handler-cpus 1=0,1=0", nil, "duplicate number 1"},
		{"--handler-cpus 1:0", nil, `"1:0" is no processor`},
		{"--handlers 2 --handler-cpus 3=0", nil, "advanced.handlers makes more"},
		{"--handler-cpus 33=0", nil, "there is no handler 33"},
		{"--handler-priority first", nil, "latency or normal"},
		{"--handlers 2 --handler-priority 9=1", nil, "there is no handler 9"},
		{"--handler-priority 1=1=1", nil, "is no priority"},

		{"--trust-file t --ca c --cert d --revoked r --key k", set(func(c *daemon.Common) {
			c.Keys = daemon.Keys{Key: "k", TrustFile: "t", CA: "c", Cert: "d", Revoked: "r"}
		}), ""},
		{"--insecure", set(func(c *daemon.Common) { c.Keys.Insecure = true }), ""},
		{"--insecure --ca c", nil, "--insecure does without keys"},
		{"--trust sha256:short", nil, "--trust: "},
	}
}

func TestHostFlags(t *testing.T) {
	of := func(args ...string) (daemon.Host, error) {
		var f hostFlags
		return parse(f.add, f.config, append([]string{"--iounit", "a"}, args...)...)
	}
	base := daemon.Host{
		Common: commonDefaults(), IOUnits: []string{"a"}, State: "/var/lib/splitnic", Netdevice: "sn0", MaxMTU: 9000,
		Offloads: vnet.AllOffloads,
		Modes:    []protocol.Mode{protocol.ModeImm}, TxQueueLen: 512,
		Direct: daemon.Direct{
			Settings: direct.Settings{On: true, Peers: 64, Idle: time.Minute, Grace: 2 * time.Second}, Memory: 512 << 20,
		},
	}
	base.Queues, base.Messaging.Timing.RetryCount = 1, 6
	checkFlags(t, of, base, append(commonCases(func(h *daemon.Host) *daemon.Common { return &h.Common }),
		[]flagCase[daemon.Host]{
			{"--iounit b,c --standby --fail-back 30s", func(h *daemon.Host) {
				h.IOUnits, h.Standby, h.FailBack = []string{"a", "b", "c"}, true, 30*time.Second
			}, ""},
			{"--standby", nil, "--standby: there is one I/O unit only"},
			{"--fail-back -1s", nil, "--fail-back -1s"},
			{"--name sn%d --host-name beta --netns ns1 --movable --persist=on", func(h *daemon.Host) {
				h.Netdevice, h.Name, h.NetNS, h.Movable, h.Persist = "sn%d", "beta", "ns1", true, true
			}, ""},
			{"--name a-name-too-long-for-linux", nil, "at most 15 characters"},
			{"--name a/b", nil, `--name "a/b": the name contains a character`},
			{"--name a:b", nil, `--name "a:b": the name contains a character`},
			{"--name sn%s", nil, `--name "sn%s": in the name, %`},
			{"--txqueuelen 0", nil, "advanced.txqueuelen 0: must be 1 to"},
			{"--iounit 10.0.0.1:99999", nil, `--iounit "10.0.0.1:99999" has a wrong port: must be 1 to 65535`},
			{"--host-name a/b", nil, `--host-name: "a/b" is not possible`},
			{"--mac 02:00:00:00:00:01 --max-mtu 1500 --txqueuelen 9", func(h *daemon.Host) {
				h.MAC, h.MaxMTU, h.TxQueueLen = protocol.MAC{2, 0, 0, 0, 0, 1}, 1500, 9
			}, ""},
			{"--mac 02:00:5e", nil, "--mac: "},
			{"--max-mtu 20", nil, "--max-mtu 20: must be 68 to"},
			{"--offloads none", func(h *daemon.Host) { h.Offloads = 0 }, ""},
			{"--plain", func(h *daemon.Host) { h.Plain, h.Offloads = true, 0 }, ""},
			{"--offloads csum,tso4", func(h *daemon.Host) { h.Offloads = vnet.CSUM | vnet.TSO4 }, ""},
			{"--offloads tso4", nil, "--offloads: "},
			{"--port tap", nil, ""},
			{"--port vhost-user:/run/s", func(h *daemon.Host) { h.Port.Path = "/run/s" }, ""},
			{"--port vhost-user:/run/s,client", func(h *daemon.Host) { h.Port.Path, h.Port.Client = "/run/s", true }, ""},
			{"--port vhost-user:s", nil, `--port "vhost-user:s": the path of the socket must begin with /`},
			{"--port tun", nil, `--port "tun": must be`},
			{"--port vhost-user:/s --persist", nil, "--persist: needs a TAP device"},
			{"--port vhost-user:/s --plain", nil, "advanced.plain: needs a TAP device"},
			{"--port vhost-user:/s --movable", nil, "--movable: needs a TAP device"},
			{"--port vhost-user:/s --netns n", nil, "--netns: needs a TAP device"},
			{"--port vhost-user:/s --latency-queue", nil, "--latency-queue: needs a TAP device"},
			{"--port vhost-user:/s --vhost-zero-copy 2Gi", func(h *daemon.Host) {
				h.Port.Path, h.ZeroCopy = "/s", 2<<30
			}, ""},
			{"--vhost-zero-copy 2G", nil, "advanced.vhost-zero-copy: needs --port vhost-user:PATH"},
			{"--port vhost-user:/s --vhost-zero-copy all", nil, `advanced.vhost-zero-copy: "all" is no size`},
			{"--queues 16 --mode send,imm", func(h *daemon.Host) {
				h.Queues, h.Modes = 16, []protocol.Mode{protocol.ModeSend, protocol.ModeImm}
			}, ""},
			{"--queues 0", nil, "--queues 0: must be 1 to 16"},
			{"--queues 17", nil, "--queues 17: must be 1 to 16"},
			{"--queues 16 --latency-queue", nil, "with --latency-queue there can be one less"},
			{"--mode imm,imm", nil, "--mode: duplicate mode imm"},
			{"--direct=no", func(h *daemon.Host) { h.Direct.On = false }, ""},
			{"--direct-peers 3 --direct-idle 5s --direct-grace 9s --direct-memory 1.5G", func(h *daemon.Host) {
				h.Direct.Peers, h.Direct.Idle, h.Direct.Grace, h.Direct.Memory = 3, 5*time.Second, 9*time.Second, 3<<29
			}, ""},
			{"--direct-peers 0", nil, "advanced.direct-peers 0: must be 1 to"},
			{"--direct-idle 0", nil, "advanced.direct-idle 0s: must be above 0"},
			{"--direct-grace -1s", nil, "advanced.direct-grace -1s: must be above 0"},
			{"--direct-memory much", nil, `advanced.direct-memory: "much" is no size`},
			{"--direct-memory 0", nil, "--direct=no"},
			{"--ca c --iounit-name gw1", func(h *daemon.Host) { h.Keys.CA, h.Keys.IOUnitNames = "c", []string{"gw1"} }, ""},
			{"--iounit-name gw1", nil, "name their authority with --ca"},
		}...))
	if _, err := of("--iounit", ","); err == nil || strings.Count(err.Error(), `--iounit "" is not an address`) != 1 {
		t.Errorf("two empty addresses: %v", err)
	}
	var f hostFlags
	if _, err := parse(f.add, f.config); err == nil || !strings.Contains(err.Error(), "--iounit is missing") {
		t.Errorf("no I/O unit: %v", err)
	}
}

func TestParseModes(t *testing.T) {
	for _, names := range [][]string{nil, {"imm", "later"}, {"imm", "imm"}, {""}} {
		if _, err := parseModes("--mode", names); exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), "--mode") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

func TestModerationIsReadAgain(t *testing.T) {
	want := messaging.Moderation{Count: 16, Period: 50 * time.Microsecond}
	var again messaging.Moderation
	text := moderationValue(&want).String()
	if err := moderationValue(&again).Set(text); err != nil || again != want {
		t.Errorf("%q is read as %+v: %v", text, again, err)
	}
}
