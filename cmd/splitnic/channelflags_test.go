package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestChannelFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want messaging.Config
		ok   bool
	}{
		{nil, messaging.Config{}, true},
		{[]string{"--cq-moderation", "16,50us"}, messaging.Config{Moderation: messaging.Moderation{Count: 16, Period: 50 * time.Microsecond}}, true},
		{[]string{"--cq-moderation", "1, 0"}, messaging.Config{Moderation: messaging.Moderation{Count: 1}}, true},
		{[]string{"--cq-moderation", "0,0"}, messaging.Config{}, true},
		{[]string{"--traffic-class", "0x68", "--service-level", "3"}, messaging.Config{TrafficClass: 0x68, ServiceLevel: 3}, true},
		{[]string{"--traffic-class", "256"}, messaging.Config{}, false},
		{[]string{"--service-level", "16"}, messaging.Config{}, false},
		{[]string{"--cq-moderation", "16"}, messaging.Config{}, false},
		{[]string{"--cq-moderation", "many,50us"}, messaging.Config{}, false},
		{[]string{"--cq-moderation", "16,soon"}, messaging.Config{}, false},
		{[]string{"--cq-moderation", "16,0"}, messaging.Config{}, false},
		{[]string{"--cq-moderation", "65536,50us"}, messaging.Config{}, false},
	} {
		var f channelFlags
		cmd := &cobra.Command{}
		f.add(cmd.Flags())
		var got messaging.Config
		err := cmd.ParseFlags(c.args)
		if err == nil {
			err = f.apply(&got)
		}
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.args, err)
		} else if got.Moderation != c.want.Moderation || got.TrafficClass != c.want.TrafficClass || got.ServiceLevel != c.want.ServiceLevel {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
	v := moderationValue{Count: 16, Period: 50 * time.Microsecond}
	var again moderationValue
	if err := again.Set(v.String()); err != nil || again != v {
		t.Errorf("%q is read as %+v: %v", v.String(), again, err)
	}
}
