package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestHostSocket(t *testing.T) {
	for _, c := range []struct {
		args, sockets []string
		want          string
		status        int
	}{
		{[]string{"sn1"}, nil, "/run/splitnic/host-sn1.sock", 0},
		{[]string{"./x.sock"}, nil, "./x.sock", 0},
		{nil, []string{"/run/splitnic/host-sn0.sock", "/run/splitnic/iounit-7580.sock"}, "/run/splitnic/host-sn0.sock", 0},
		{nil, []string{"/run/splitnic/iounit-7580.sock"}, "", exitMissing},
		{nil, []string{"/run/splitnic/host-a.sock", "/run/splitnic/host-b.sock"}, "", exitUsage},
	} {
		got, err := daemonSocket("host", c.args, func() ([]string, error) { return c.sockets, nil })
		if got != c.want || exitStatus(err) != c.status {
			t.Errorf("%q of %q: %q, %v", c.args, c.sockets, got, err)
		}
	}
}

func TestParseModes(t *testing.T) {
	got, err := parseModes("--mode", []string{"send-uc", "imm"})
	if err != nil || !slices.Equal(got, []protocol.Mode{protocol.ModeSendUC, protocol.ModeImm}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, names := range [][]string{nil, {"imm", "later"}, {"imm", "imm"}, {""}} {
		var usage usageError
		if _, err := parseModes("--mode", names); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--mode") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// TestPrintHost shows all that a host can have to say.
func TestPrintHost(t *testing.T) {
	vlans := protocol.AllVLANs()
	raw, err := json.Marshal(host.Status{
		Role: "host", Name: "alpha", State: host.Connected,
		IOUnit: host.IOUnitStatus{Mode: protocol.ModeIndicate},
		Filter: &protocol.ReceiveFilter{AllMulti: true, Unicast: []protocol.MAC{{2}}}, VLANs: &vlans,
		LastRefusal: &host.Refusal{What: "promiscuous mode", Wanted: "on", Reason: "the I/O unit: denied", At: time.Now()},
		Traffic: &messaging.Stats{PoolsAsked: 4711, Channels: []messaging.ChannelStats{{
			LentPools:    []messaging.Pool{{ElementSize: 2048, Ledger: messaging.Ledger{Elements: 256}}, {ElementSize: 65535, Extra: true, Ledger: messaging.Ledger{Elements: 32}}},
			RxLost:       23,
			MemoryPinned: 3 << 20,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printStatus(&out, raw); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"indicate", "all multicast, 1 further", "VLANs", "promiscuous mode on", "denied",
		"4711 asked for", "256×2048, 32×65535 (asked for) lent", "3.0 MiB", "23 frames",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the status does not say %q:\n%s", want, &out)
		}
	}
}

func TestSocketPath(t *testing.T) {
	for name, want := range map[string]string{
		"sn0": statussock.Path("host-sn0"), "host-sn0": statussock.Path("host-sn0"), "iounit-7580": statussock.Path("iounit-7580"),
		"/tmp/x": "/tmp/x", "./x": "./x", "x.sock": "x.sock",
	} {
		if got := socketPath(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
