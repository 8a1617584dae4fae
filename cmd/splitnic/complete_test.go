package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestCompleteNames(t *testing.T) {
	list := func() ([]string, error) {
		return []string{"/run/splitnic/host-sn0.sock", "/run/splitnic/host-sn1.sock", "/run/splitnic/iounit-7580.sock"}, nil
	}
	for _, c := range []struct {
		units bool
		args  []string
		want  []string
	}{
		{true, nil, []string{"sn0", "sn1", "iounit-7580"}}, {false, nil, []string{"sn0", "sn1"}},
		{true, []string{"sn0"}, []string{"sn1", "iounit-7580"}},
	} {
		if got, _ := completeNames(c.units, list)(nil, c.args, ""); !slices.Equal(got, c.want) {
			t.Errorf("%t, %q: %q, want %q", c.units, c.args, got, c.want)
		}
	}
}

// TestCompletions asks as a shell does.
func TestCompletions(t *testing.T) {
	for line, want := range map[string]string{
		"top --sort ":    "name\nout\nin\npackets\ndrops\n:4\n",
		"doctor --role ": "host\niounit\n:4\n",
	} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append([]string{"__complete"}, strings.Split(line, " ")...))
		root.SetOut(&out)
		root.SetErr(t.Output())
		if err := root.ExecuteContext(t.Context()); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", line, out.String(), err)
		}
	}
}
