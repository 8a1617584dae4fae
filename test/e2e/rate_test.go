package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// rateStatus is the part of the I/O unit's status about rates.
type rateStatus struct {
	Hosts []struct {
		Name       string `json:"name"`
		Session    string `json:"session"`
		MaxTx      int64  `json:"max_tx_rate"`
		MaxRx      int64  `json:"max_rx_rate"`
		TxLimited  uint64 `json:"tx_limited"`
		RxLimited  uint64 `json:"rx_limited"`
		Statistics struct {
			TxBytes uint64 `json:"tx_bytes"`
			RxBytes uint64 `json:"rx_bytes"`
		} `json:"statistics"`
	} `json:"hosts"`
}

// rates waits until the I/O unit has one host, and returns its status.
func (d *daemon) rates() rateStatus {
	d.t.Helper()
	var s rateStatus
	eventually(d.t, func() bool {
		s = rateStatus{}
		return d.toldInto(&s) && len(s.Hosts) == 1
	}, "one host")
	return s
}

// TestRDMAPolicyRate limits a host's rates and removes the limits within one session. On a machine of
// any speed, no more bytes may pass than the rate allows in the measured time.
func TestRDMAPolicyRate(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t)
	first := r.unit.rates().Hosts[0]
	const (
		rate = 200_000   // bit/s; low enough to be a limit on an emulated machine
		n    = 192 << 10 // bytes of data in each direction
		// Bytes that the host may have saved up, and the rest of the last frame.
		overdraft = 2<<16 + 1<<16
	)
	load := func(bounded bool) {
		t.Helper()
		begun := time.Now()
		before := r.unit.rates().Hosts[0]
		testenv.Exchange(t, r.lan, addr(0), h.ns, n)
		after := r.unit.rates().Hosts[0]
		took := time.Since(begun)
		most := rate/8*took.Seconds() + overdraft
		for way, bytes := range map[string]uint64{
			"to":   after.Statistics.TxBytes - before.Statistics.TxBytes,
			"from": after.Statistics.RxBytes - before.Statistics.RxBytes,
		} {
			t.Logf("%d bytes %s the LAN in %v; %d bit/s allow %.0f", bytes, way, took, rate, most)
			if bounded && float64(bytes) > most {
				t.Errorf("%d bytes %s the LAN in %v; %d bit/s allow %.0f", bytes, way, took, rate, most)
			}
		}
		if tx, rx := after.TxLimited-before.TxLimited, after.RxLimited-before.RxLimited; (tx > 0) != bounded ||
			(rx > 0) != bounded {
			t.Errorf("limited %d times on the way to the LAN, %d times on the way from it", tx, rx)
		}
	}
	put := func(rules string) {
		t.Helper()
		if err := os.WriteFile(r.policy, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, r.bin, "reload", r.unit.sock)
	}
	load(false)
	put("default: {max-tx-rate: 200k, max-rx-rate: 0.2mbit}\n")
	if s := r.unit.rates().Hosts[0]; s.MaxTx != rate || s.MaxRx != rate {
		t.Errorf("the status has rates %d and %d", s.MaxTx, s.MaxRx)
	}
	if text := run(t, r.bin, "status", "-v", r.unit.sock); !strings.Contains(text, "200kbit to the LAN") ||
		!strings.Contains(text, "200kbit from it") {
		t.Errorf("the status does not show the rates:\n%s", text)
	}
	load(true)
	put("default: {max-tx-rate: unlimited}\n")
	load(false)
	if s := r.unit.rates().Hosts[0]; s.Session != first.Session || s.MaxTx+s.MaxRx != 0 {
		t.Errorf("session %s with rates %d and %d; it was %s", s.Session, s.MaxTx, s.MaxRx, first.Session)
	}
}
