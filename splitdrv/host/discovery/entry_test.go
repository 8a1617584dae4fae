package discovery

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, good := range []string{
		"10.0.0.1", "10.0.0.1:7581", "[fd00::1]:7580", "fd00::1", "[fd00::1]", "fe80::1%eth0", "[fe80::1%eth0]:1",
		"unit", "unit.example", "unit.example.", "unit_1.example:splitnic", "10.example", "srv:7580",
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
		"", ":7580", "10.0.0", "10.0.0.256", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:7580:7580",
		"http://10.0.0.1", "10.0.0.1/24", "root@unit", "a b", "a,b", "unit..example", "[unit", "a:b:c", "fd00::1::2",
		"ä.example", "0.0.0.0", "[::]:7580", "::", "224.0.0.1", "255.255.255.255:7580", "ff02::1%eth0", "fe80::1",
	} {
		if err := Check(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestByDNS(t *testing.T) {
	for entry, want := range map[string]string{
		"srv:_a._tcp.b": "_a._tcp.b", "SRV:a.": "a.", "srv:1.2": "1.2", // names for DNS
		"srv:7580": "", "srv": "", "srvs:a": "", "10.0.0.1": "", "": "", // no names for DNS
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
