package tap

import (
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestLabel(t *testing.T) {
	since := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	a, b := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, l := range []Label{
		{Name: "sn0", Since: since, TxQueueLen: 512},
		{Name: "fifteen-letters", Since: since, Adopted: 1<<32 - 1, TxQueueLen: 1<<32 - 1,
			Memory: Memory{MAC: a, MTU: 65535, Granted: true, WantMAC: b, WantMTU: 65535}, number: 1<<32 - 1, random: 1},
		{Name: "a-b", Since: since, Adopted: 3, TxQueueLen: 1, Memory: Memory{MTU: 1500}, number: 1<<32 - 1,
			random: 1<<32 - 1},
	} {
		text := l.String()
		if len(text) > maxAltName || strings.ContainsAny(text, "/: \t\n") {
			t.Errorf("no alternative name, with %d bytes: %s", len(text), text)
		}
		if got, ok := parseLabel(text); !ok || !reflect.DeepEqual(got, l) {
			t.Errorf("%s: %t, %+v instead of %+v", text, ok, got, l)
		}
	}
	for _, alias := range []string{"", "uplink-of-the-lab", "splitnic", "splitnic-eth1",
		labelPrefix + strings.Repeat("-", labelFields-2), labelPrefix + strings.Repeat("-", maxAltName)} {
		if l, ok := parseLabel(alias); ok {
			t.Errorf("%q is taken for a label: %+v", alias, l)
		}
	}
	// Whoever is root in the device's namespace can write a label, too.
	for _, name := range []string{"sn\x1b[2J", "sn\u009b2J", "sn\xff", "sn\u202e0"} {
		if l, ok := parseLabel((&Label{Name: name, Since: since}).String()); !ok || l.Name != "" {
			t.Errorf("%t, the label's name is %q", ok, l.Name)
		}
		if err := CheckName(name); err == nil {
			t.Errorf("%q may be the name of a device", name)
		}
	}
	// The kernel would make another name of a pattern.
	if l, ok := parseLabel((&Label{Name: "sn%d", Since: since}).String()); !ok || l.Name != "" {
		t.Errorf("%t, the label's name is %q", ok, l.Name)
	}
	// Invalid parts of a label are ignored.
	l, ok := parseLabel(labelPrefix + "x-y-today-1_0-z-030000000001--yes-0200-578-a/b")
	if want := (Label{Since: time.Unix(0, 0).UTC(), Memory: Memory{WantMTU: 1400}}); !ok || !reflect.DeepEqual(l, want) {
		t.Errorf("%t, %+v instead of %+v", ok, l, want)
	}
}

// TestLabelOf reads the labels of a device whose process was killed while it wrote a new one.
func TestLabelOf(t *testing.T) {
	old, fresh := Label{Name: "sn0", Adopted: 1, number: 9}, Label{Name: "sn0", Adopted: 2, number: 10}
	link := &netlink.Dummy{}
	if l, ok := labelOf(link); ok {
		t.Errorf("a device without a label has %+v", l)
	}
	for _, names := range [][]string{{"uplink", old.String(), fresh.String()},
		{fresh.String(), old.String(), "splitnic-lan-sn0"}} {
		link.AltNames = names
		if l, ok := labelOf(link); !ok || l.Adopted != 2 {
			t.Errorf("%q: %t, %+v", names, ok, l)
		}
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("splitnic-0badcafe-2-69817b85-1-200-020000000001-5dc-1-020000000002-578-sn0")
	f.Add("splitnic-----------")
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
