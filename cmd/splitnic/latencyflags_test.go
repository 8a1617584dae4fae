package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
)

func TestLatencyFlags(t *testing.T) {
	standard := steer.DefaultClasses()
	for _, c := range []struct {
		args []string
		want *steer.Classes
		m    messaging.Config
		ok   bool
	}{
		{nil, nil, messaging.Config{}, true},
		{[]string{"--latency-queue"}, &standard, messaging.Config{}, true},
		{[]string{"--latency-queue", "--latency-dscp", "af41,10,EF"}, &steer.Classes{DSCP: 1<<34 | 1<<10 | 1<<46}, messaging.Config{}, true},
		{[]string{"--latency-queue", "--latency-dscp", "none", "--latency-size", "128"}, &steer.Classes{Size: 128}, messaging.Config{}, true},
		{
			[]string{"--latency-queue", "--latency-traffic-class", "0xb8", "--latency-service-level", "4"}, &standard,
			messaging.Config{LatencyTrafficClass: 0xb8, LatencyServiceLevel: 4}, true,
		},
		{[]string{"--latency-dscp", "64"}, nil, messaging.Config{}, false},
		{[]string{"--latency-dscp", "fast"}, nil, messaging.Config{}, false},
		{[]string{"--latency-size", "-1"}, nil, messaging.Config{}, false},
		{[]string{"--latency-size", "65536"}, nil, messaging.Config{}, false},
		{[]string{"--latency-service-level", "16"}, nil, messaging.Config{}, false},
		{[]string{"--latency-traffic-class", "256"}, nil, messaging.Config{}, false},
	} {
		var f latencyFlags
		var m messaging.Config
		var got *steer.Classes
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) (err error) {
			got, err = f.apply(&m)
			return err
		}}
		f.add(cmd.Flags(), false, "")
		cmd.SetArgs(append([]string{}, c.args...))
		if err := cmd.Execute(); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%q: classes %+v", c.args, got)
		}
		if m.LatencyTrafficClass != c.m.LatencyTrafficClass || m.LatencyServiceLevel != c.m.LatencyServiceLevel {
			t.Errorf("%q: traffic class %#x, service level %d", c.args, m.LatencyTrafficClass, m.LatencyServiceLevel)
		}
	}
}

func TestPrintLatency(t *testing.T) {
	for _, c := range []struct {
		s    *steer.Status
		want []string
	}{
		{nil, nil},
		{&steer.Status{On: true, Classes: steer.DefaultClasses(), Limit: 1518}, []string{"va,ef,cs6,cs7", "1518"}},
		{&steer.Status{On: true, Classes: steer.Classes{Size: 99}, Limit: 1518}, []string{"none", "99"}},
		{&steer.Status{Reason: "for a reason"}, []string{"none", "for a reason"}},
	} {
		var b bytes.Buffer
		printLatency(&b, "", c.s)
		if c.want == nil && b.Len() > 0 {
			t.Errorf("without any: %q", b.String())
		}
		for _, w := range c.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%+v: %q", c.s, b.String())
			}
		}
	}
}
