package steer_test

import (
	"slices"
	"testing"

	"github.com/splitnic/splitnic/tap/steer"
)

func TestDSCP(t *testing.T) {
	for _, tc := range []struct {
		list []string
		want string
	}{
		{nil, "none"}, {[]string{"none"}, "none"}, {[]string{"NONE"}, "none"},
		{[]string{"ef"}, "ef"}, {[]string{"46"}, "ef"}, {[]string{"EF", " va", "46"}, "va,ef"},
		{[]string{"0"}, "cs0"}, {[]string{"63", "cs7", "2"}, "2,cs7,63"},
		{steer.DefaultClasses().DSCP.Words(), "va,ef,cs6,cs7"},
	} {
		s, err := steer.ParseDSCP(tc.list)
		if err != nil || s.String() != tc.want {
			t.Errorf("%q: %v, %v", tc.list, s, err)
		}
		again, err := steer.ParseDSCP(s.Words())
		if err != nil || again != s {
			t.Errorf("%q, parsed again: %v, %v", s.Words(), again, err)
		}
		var back steer.DSCPSet
		if text, err := s.MarshalText(); err != nil || back.UnmarshalText(text) != nil || back != s {
			t.Errorf("%v: as text %q, and back %v", s, text, back)
		}
	}
	for _, list := range [][]string{{"64"}, {"-1"}, {""}, {"eff"}, {"ef", "none"}, {"300"}} {
		if s, err := steer.ParseDSCP(list); err == nil {
			t.Errorf("%q is %v", list, s)
		}
	}
	if s := steer.DSCPSet(1 << 63); !s.Has(63) || s.Has(0) || s.Has(64) || s.Has(127) {
		t.Errorf("%v has not what it has", s)
	}
}

func TestRuleCheck(t *testing.T) {
	good := steer.Rule{Classes: steer.DefaultClasses(), Queues: 2, Limit: 1518}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for i, spoil := range []func(*steer.Rule){
		func(r *steer.Rule) { r.Queues = 1 },
		func(r *steer.Rule) { r.Queues = 257 },
		func(r *steer.Rule) { r.Limit = 0 },
		func(r *steer.Rule) { r.Limit = 1<<16 + 1 },
		func(r *steer.Rule) { r.Pause = -1 },
		func(r *steer.Rule) { r.Size = -1 },
		func(r *steer.Rule) { r.Size = steer.MaxSize + 1 },
	} {
		r := good
		spoil(&r)
		if r.Check() == nil {
			t.Errorf("%d: %+v is accepted", i, r)
		}
		if _, err := r.Load(steer.TAP); err == nil {
			t.Errorf("%d: %+v is loaded", i, r)
		}
	}
	if !slices.Equal(steer.DefaultClasses().DSCP.Words(), []string{"va", "ef", "cs6", "cs7"}) {
		t.Error("the default is another one")
	}
}
