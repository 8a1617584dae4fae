package render

import (
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/internal/cards"
)

// TestCardNames lists cards whose names have the same beginning. It expects complete names,
// because commands need them.
func TestCardNames(t *testing.T) {
	var all []cards.Info
	for _, container := range []string{"0123456789abcdef-1", "0123456789abcdef-2"} {
		all = append(all, cards.Info{
			Spec: cards.Spec{
				Name: "cni-" + container, Netdevice: "eth0", NetNS: "/proc/4711/ns/net",
				Owner: "cni/lan/" + strings.Repeat("0", 64) + "/eth0",
			},
			Status: cards.Status{
				State: cards.Connected, Since: past(time.Hour), MAC: "02:00:00:00:00:01", Carrier: true,
				IOUnit: strings.Repeat("u", 64),
			},
		})
	}
	var b strings.Builder
	if err := Cards(&b, all, now); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if name := all[i].Spec.Name; !strings.Contains(b.String(), name+" ") {
			t.Errorf("%s is not in\n%s", name, &b)
		}
	}
}
