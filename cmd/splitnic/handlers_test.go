package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

func TestChangeFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		ok   bool
	}{
		{nil, `{}`, true},
		{[]string{"--assign", "2=1", "--assign", "1=3"}, `{"assign":{"1":3,"2":1}}`, true},
		{[]string{"--cpus", "1=2,2=3"}, `{"handlers":[{"number":1,"processors":"2"},{"number":2,"processors":"3"}]}`, true},
		{[]string{"--assign", "2=1,1=3", "--cpus", "1=0-1,3,2=any"},
			`{"assign":{"1":3,"2":1},"handlers":[{"number":1,"processors":"0-1,3"},{"number":2,"processors":""}]}`, true},
		{[]string{"--cpus", "1=0-3,8", "--budget", "1=7", "--cpus", "2=any", "--spin", "0=5us", "--priority", "1=latency"},
			`{"handlers":[{"number":1,"processors":"0-3,8","priority":-10,"budget":7},{"number":2,"processors":""},` +
				`{"number":0,"spin_ns":5000,"adaptive":false}]}`, true},
		{[]string{"--spin", "1=auto,2=auto:1ms"},
			`{"handlers":[{"number":1,"spin_ns":100000,"adaptive":true},{"number":2,"spin_ns":1000000,"adaptive":true}]}`, true},
		{[]string{"--assign", "2"}, "", false},
		{[]string{"--assign", "2=x"}, "", false},
		{[]string{"--assign", "x=2"}, "", false},
		{[]string{"--cpus", "1=x"}, "", false},
		{[]string{"--cpus", "1:0"}, "", false},
		{[]string{"--cpus", "0-3"}, "", false},
		{[]string{"--cpus", "1=0", "--cpus", "1=2"}, "", false},
		{[]string{"--budget", "1=many"}, "", false},
		{[]string{"--spin", "1=5"}, "", false},
		{[]string{"--priority", "1=first"}, "", false},
	} {
		var f changeFlags
		ch, err := parse(f.add, f.config, c.args...)
		if (err == nil) != c.ok || (err != nil && exit.Status(err) != exit.Usage) {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if !c.ok {
			continue
		}
		raw, err := json.Marshal(ch)
		if err != nil || string(raw) != c.want || emptyChange(&ch) != (c.want == "{}") {
			t.Errorf("%q: %s, %v", c.args, raw, err)
		}
		var back cq.HandlerChange
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Error(err)
		}
		if again, err := json.Marshal(back); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s became %s, %v", raw, again, err)
		}
	}
}
