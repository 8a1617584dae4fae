package tap_test

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
)

// TestNetnsErrdocTAP opens devices that cannot exist, and expects documented errors.
func TestNetnsErrdocTAP(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip")
	ns := testenv.NetNS(t)
	testenv.Bridge(t, ns, "br0")
	testenv.Run(t, ns, "ip", "tuntap", "add", "dev", "stale", "mode", "tap")
	held, err := tap.Open(tap.Config{Name: "held", NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for kind, open := range openers {
		for name, cfg := range map[string]tap.Config{
			"held by another":        {Name: "held", NetNS: ns},
			"left behind":            {Name: "stale", NetNS: ns},
			"of another kind":        {Name: "br0", NetNS: ns},
			"a name too long":        {Name: "sixteen-letters-", NetNS: ns},
			"a name with a slash":    {Name: "a/b", NetNS: ns},
			"a name with a format":   {Name: "%s", NetNS: ns},
			"no such namespace":      {Name: "sn0", NetNS: "sntest-none"},
			"more queues than there": {Name: "sn0", NetNS: ns, Queues: 257},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				d, err := open(cfg)
				if err == nil {
					t.Fatal(errors.Join(errors.New("no error"), d.Close()))
				}
				testenv.Explained(t, err.Error())
			})
		}
	}
}
