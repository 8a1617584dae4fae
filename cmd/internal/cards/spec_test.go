package cards

import (
	"errors"
	"strings"
	"testing"
)

// TestSpecFields expects an error that names the field for each field that is not valid.
func TestSpecFields(t *testing.T) {
	for field, specs := range map[string][]Spec{
		"name": {
			{Name: ""}, {Name: "a/b"}, {Name: "."}, {Name: ".."}, {Name: ".x"}, {Name: "-x"}, {Name: "a b"},
			{Name: strings.Repeat("x", maxName+1), Netdevice: "sn0"},
		},
		"netdevice": {
			{Name: "a-name-for-no-netdevice"}, {Name: "a", Netdevice: "a/b"}, {Name: "a", Netdevice: "sn%d"},
			{Name: "a", Netdevice: ".."}, {Name: "a", Netdevice: "a b"}, {Name: "a", Netdevice: "a:b"},
		},
		"netns":  {{Name: "a", NetNS: "netns/x"}, {Name: "a", NetNS: ".."}},
		"mac":    {{Name: "a", MAC: "02:00"}, {Name: "a", MAC: "x"}},
		"mtu":    {{Name: "a", MTU: 67}, {Name: "a", MTU: 65536}, {Name: "a", MTU: -1}},
		"queues": {{Name: "a", Queues: -1}, {Name: "a", Queues: 1 << 20}},
		"iounits": {{Name: "a", IOUnits: []string{""}}, {Name: "a", IOUnits: []string{"10.0.0.1,10.0.0.2"}},
			{Name: "a", IOUnits: []string{"10.0.0.1", "u", "10.0.0.1:7580"}}},
		"device":    {{Name: "a", Device: "../x"}},
		"host_name": {{Name: "a", HostName: "a b"}},
		"key":       {{Name: "a", Key: "key.pem"}},
		"cert":      {{Name: "a", Cert: "/cert.pem"}, {Name: "a", Key: "/key.pem", Cert: "cert.pem"}},
		"new_key":   {{Name: "a", Key: "/key.pem", NewKey: true}},
		"transient": {{Name: "a", Transient: true}},
		"owner": {
			{Name: "a", Owner: "two words"}, {Name: "a", Owner: "x\n"}, {Name: "a", Owner: "\xff"},
			{Name: "a", Owner: strings.Repeat("x", maxOwner+1)},
		},
	} {
		for _, spec := range specs {
			_, err := spec.Complete()
			var wrong *FieldError
			if !errors.As(err, &wrong) || wrong.Field != field || !strings.HasPrefix(err.Error(), field+": ") {
				t.Errorf("%s: %+v: %v", field, spec, err)
			}
		}
	}
}

// TestSpecSeveral expects an error that names every field that is not valid.
func TestSpecSeveral(t *testing.T) {
	_, err := Spec{Name: "a", MAC: "x", MTU: 1}.Complete()
	if err == nil || !strings.Contains(err.Error(), "mac: ") || !strings.Contains(err.Error(), "mtu: ") {
		t.Error(err)
	}
}

// TestSpecEqual expects requests to be equal that differ only in notation, and no others.
func TestSpecEqual(t *testing.T) {
	complete := func(s Spec) *Spec {
		t.Helper()
		c, err := s.Complete()
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Complete()
		if err != nil || c.Differs(&again) != "" {
			t.Errorf("%+v is completed as %+v, %v", c, again, err)
		}
		return &c
	}
	one := complete(Spec{Name: "a", NetNS: "pod", MAC: "02:AA:00:00:00:01", IOUnits: []string{}})
	same := complete(Spec{Name: "a", Netdevice: "a", NetNS: "/run/netns/pod", MAC: "02:aa:00:00:00:01"})
	if field := one.Differs(same); field != "" {
		t.Errorf("%s differs", field)
	}
	for field, s := range map[string]Spec{
		"netdevice": {Name: "a", NetNS: "pod", MAC: "02:aa:00:00:00:01", Netdevice: "net1"},
		"netns":     {Name: "a", MAC: "02:aa:00:00:00:01"},
		"mac":       {Name: "a", NetNS: "pod"},
		"iounits":   {Name: "a", NetNS: "pod", MAC: "02:aa:00:00:00:01", IOUnits: []string{"10.0.0.1"}},
		"new_key":   {Name: "a", NetNS: "pod", MAC: "02:aa:00:00:00:01", NewKey: true},
		"owner":     {Name: "a", NetNS: "pod", MAC: "02:aa:00:00:00:01", Owner: "me"},
	} {
		if got := one.Differs(complete(s)); got != field {
			t.Errorf("%s: %q differs", field, got)
		}
	}
}

// FuzzSpec parses bodies of requests. It expects an accepted one to be complete, and to be the
// same after it was written to the state directory and read.
func FuzzSpec(f *testing.F) {
	for _, s := range []string{
		`{"name":"a"}`, `{"name":"a","netns":"pod","mac":"02:00:00:00:00:01","mtu":1500}`, `{"name":1}`, `[]`, `{} {}`,
		`{"name":"a","owner":"cni/net/0123/eth0"}`, `{"name":"a","unknown":1}`, `{"name":"a","iounits":["10.0.0.1:7580"],"key":"/k","cert":"/c"}`, "",
	} {
		f.Add([]byte(s))
	}
	store, err := OpenStore(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { store.Close() })
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := parseSpec(text)
		if err == nil {
			spec, err = spec.Complete()
		}
		if err != nil {
			if field := (*FieldError)(nil); !errors.As(err, &field) {
				t.Errorf("%v names no field", err)
			}
			return
		}
		if err := store.Put(&spec); err != nil {
			t.Fatal(err)
		}
		n, err := store.read(spec.Name)
		if err != nil || spec.Differs(&n.Spec) != "" {
			t.Errorf("%+v comes back as %+v, %v", spec, n.Spec, err)
		}
		if err := store.Delete(spec.Name); err != nil {
			t.Error(err)
		}
	})
}

// TestCheckIOUnits expects an entry that is in a list before, perhaps in another form, to be an error, and
// machines with the same address on different links not to be one.
func TestCheckIOUnits(t *testing.T) {
	for _, c := range []struct {
		list string
		want int
	}{
		{"a A:7580 b", 1}, {"a a:7581", 0}, {"srv:x.y SRV:X.y", 1}, {"srv:x.y x.y", 0}, {"a a a", 1},
		{"::1 [::1]:7580", 1}, {"::1 0:0::1", 1}, {"2001:DB8::1 2001:db8::1", 1},
		{"fe80::1%eth0 FE80::1%eth0", 1}, {"fe80::1%eth0 fe80::1%ETH0", 0},
	} {
		if got := CheckIOUnits(strings.Fields(c.list)); len(got) != c.want {
			t.Errorf("%s: %v, want %d", c.list, got, c.want)
		}
	}
}
