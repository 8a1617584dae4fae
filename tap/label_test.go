package tap

import (
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLabel(t *testing.T) {
	since := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	a, b := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, l := range []Label{
		{Name: "sn0", Since: since, TxQueueLen: 512},
		{Name: "fifteen-letters", Since: since, Adopted: 1<<32 - 1, TxQueueLen: 1<<32 - 1, Memory: Memory{MAC: a, MTU: 65535, Granted: true, WantMAC: b, WantMTU: 65535}},
		{Name: "a=b", Since: since, Adopted: 3, TxQueueLen: 1, Memory: Memory{MTU: 1500}},
	} {
		text := l.String()
		if len(text) > maxAlias {
			t.Errorf("%d bytes are too long for an alias: %s", len(text), text)
		}
		if got, ok := parseLabel(text); !ok || !reflect.DeepEqual(got, l) {
			t.Errorf("%s: %t, %+v instead of %+v", text, ok, got, l)
		}
	}
	for _, alias := range []string{"", "uplink of the lab", "splitnic", "splitnic:eth1", labelPrefix + strings.Repeat("x", maxAlias)} {
		if l, ok := parseLabel(alias); ok {
			t.Errorf("%q is taken for a label: %+v", alias, l)
		}
	}
	// Of a version to come, or damaged by hand.
	l, ok := parseLabel(labelPrefix + "name=a/b since=today colour=red adopted=-1 txqueuelen=x mac=03:00:00:00:00:01 want-mac=02:00 mtu= granted= want-mtu=1400")
	if want := (Label{Memory: Memory{WantMTU: 1400}}); !ok || !reflect.DeepEqual(l, want) {
		t.Errorf("%t, %+v instead of %+v", ok, l, want)
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("splitnic name=sn0 since=2026-02-03T04:05:06Z adopted=1 txqueuelen=512 mac=02:00:00:00:00:01 mtu=1500 granted=yes want-mac=02:00:00:00:00:02 want-mtu=1400")
	f.Add("splitnic since= =")
	f.Fuzz(func(t *testing.T, alias string) {
		l, ok := parseLabel(alias)
		if !ok {
			return
		}
		again, ok := parseLabel(l.String())
		if !ok || again.String() != l.String() {
			t.Errorf("%q becomes %q and then %q", alias, l.String(), again.String())
		}
	})
}
