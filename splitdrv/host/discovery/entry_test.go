package discovery

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, good := range []string{
		"10.0.0.1", "10.0.0.1:7581", "[fd00::1]:7580", "unit.example", // addresses are not its concern
		"srv:_splitnic._tcp.fabric.example", "srv:_splitnic._tcp.fabric.example.", "srv:splitnic.service.consul", "srv:a",
		"srv:" + strings.Join([]string{label, label, label, label[:61]}, "."),
	} {
		if err := Check(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"srv:", "srv:.", "srv:a..b", "srv:.a", "srv:a..", "srv:a b", "srv:a/b", "srv:ä.example", "srv:a\x00", `srv:a\.b`,
		"srv:_splitnic._tcp.fabric.example:7580", "srv:" + label + "a",
		"srv:" + strings.Join([]string{label, label, label, label[:62]}, "."),
	} {
		if err := Check(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestByDNS(t *testing.T) {
	for entry, want := range map[string]string{
		"srv:_a._tcp.b": "_a._tcp.b", "SRV:a.": "a.", "srv:1.2": "1.2", // by DNS
		"srv:7580": "", "srv": "", "srvs:a": "", "10.0.0.1": "", "": "", // not
	} {
		if name, ok := ByDNS(entry); name != want && ok || ok != (want != "") {
			t.Errorf("%q: %q, %t", entry, name, ok)
		}
	}
}

func TestSeveral(t *testing.T) {
	for want, lists := range map[bool][][]string{
		false: {nil, {"a"}}, true: {{"a", "b"}, {"srv:a"}, {"srv:a", "b"}},
	} {
		for _, list := range lists {
			if Several(list) != want {
				t.Errorf("%q: %t", list, !want)
			}
		}
	}
}
