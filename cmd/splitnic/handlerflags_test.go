package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestHandlerFlags(t *testing.T) {
	cpu := cpus.Allowed()[0]
	one := func(format string) string { return fmt.Sprintf(format, cpu) }
	text := func(all []messaging.Handler) string {
		var b strings.Builder
		for _, h := range all {
			fmt.Fprintf(&b, "%d:%v/%d/%d/%v ", h.Number, h.CPUs, h.Priority, h.Budget, h.Spin)
		}
		return strings.TrimSpace(b.String())
	}
	for _, c := range []struct {
		args   []string
		want   string
		words  string // of the error
		status int
	}{
		{args: nil},
		{args: []string{"--spin", "20us"}},
		{args: []string{"--handlers", "2"}, want: "0:/0/256/0s 1:/0/256/0s 2:/0/256/0s"},
		{args: []string{"--poll-budget", "9", "--spin", "1ms"}, want: "0:/0/9/0s 1:/0/9/1ms 2:/0/9/1ms 3:/0/9/1ms"},
		{args: []string{"--handlers", "2", "--handler-cpus", one("%d")}, want: one("0:/0/256/0s 1:%[1]d/0/256/0s 2:%[1]d/0/256/0s")},
		{args: []string{"--handlers", "1", "--handler-cpus", one("0:%[1]d,1:%[1]d")}, want: one("0:%[1]d/0/256/0s 1:%[1]d/0/256/0s")},
		{args: []string{"--handlers", "2", "--handler-cpus", one("2:%[1]d,%[1]d")}, want: one("0:/0/256/0s 1:/0/256/0s 2:%d/0/256/0s")},
		{args: []string{"--handlers", "2", "--handler-priority", "5"}, want: "0:/0/256/0s 1:/5/256/0s 2:/5/256/0s"},
		{args: []string{"--handlers", "2", "--handler-priority", "0:3,2:normal"}, want: "0:/3/256/0s 1:/0/256/0s 2:/0/256/0s"},

		{args: []string{"--handlers", "-1"}, words: "--handlers -1", status: exitUsage},
		{args: []string{"--handlers", "33"}, words: "must be 1 to 32", status: exitUsage},
		{args: []string{"--poll-budget", "0"}, words: "--poll-budget 0", status: exitUsage},
		{args: []string{"--spin", "-1s"}, words: "--spin -1s", status: exitUsage},
		{args: []string{"--spin", "1h"}, words: "0 to 1s", status: exitUsage},
		{args: []string{"--handler-cpus", "first"}, words: `--handler-cpus: "first" is no processor`, status: exitUsage},
		{args: []string{"--handler-cpus", "1:first"}, words: "handler 1", status: exitUsage},
		{args: []string{"--handler-cpus", "x:1"}, words: `"x" is no handler`, status: exitUsage},
		{args: []string{"--handler-cpus", "1,1:1"}, words: "is for no handler", status: exitUsage},
		{args: []string{"--handler-cpus", "1:0,1:0"}, words: "handler 1 is there twice", status: exitUsage},
		{args: []string{"--handler-cpus", "9:0"}, words: "--handlers makes more", status: exitUsage},
		{args: []string{"--handler-cpus", "1023"}, words: "this machine has", status: exitUsage},
		{args: []string{"--handler-priority", "first"}, words: "latency or normal", status: exitUsage},
		{args: []string{"--handler-priority", "9:1"}, words: "there is no handler 9", status: exitUsage},
		{args: []string{"--handler-priority", "1:1:1"}, words: "is no priority", status: exitUsage},
		{args: []string{"--handler-priority", "20"}, words: "-20 (first) to 19 (last)", status: exitUsage},
	} {
		var f handlerFlags
		cmd := &cobra.Command{}
		f.add(cmd.Flags())
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		var m messaging.Config
		err := f.apply(&m, 3, 4)
		if exitStatus(err) != c.status || (err != nil && !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%q: %v", c.args, err)
		}
		if got := text(m.Handlers); err == nil && (got != c.want || m.Spin != f.spin) {
			t.Errorf("%q:\n%s, want\n%s", c.args, got, c.want)
		}
	}
}

func TestChangeFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		ok   bool
	}{
		{nil, `{}`, true},
		{[]string{"--assign", "2=1", "--assign", "1=3"}, `{"assign":{"1":3,"2":1}}`, true},
		{[]string{"--cpus", "1=0-3,8", "--budget", "1=7", "--cpus", "2=any", "--spin", "0=5us", "--priority", "1=latency"},
			`{"handlers":[{"number":1,"processors":"0-3,8","priority":-10,"budget":7},{"number":2,"processors":""},{"number":0,"spin_ns":5000}]}`, true},
		{[]string{"--assign", "2"}, "", false},
		{[]string{"--assign", "2=x"}, "", false},
		{[]string{"--assign", "x=2"}, "", false},
		{[]string{"--cpus", "1=x"}, "", false},
		{[]string{"--cpus", "1:0"}, "", false},
		{[]string{"--budget", "1=many"}, "", false},
		{[]string{"--spin", "1=5"}, "", false},
		{[]string{"--priority", "1=first"}, "", false},
	} {
		var f changeFlags
		cmd := &cobra.Command{}
		f.add(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		ch, err := f.change()
		var usage usageError
		if (err == nil) != c.ok || (err != nil && !errors.As(err, &usage)) {
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
		var back messaging.HandlerChange
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Error(err)
		}
		if again, err := json.Marshal(back); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s became %s, %v", raw, again, err)
		}
	}
}

// TestPrintHandlers shows all that there can be to say about handlers.
func TestPrintHandlers(t *testing.T) {
	s := host.Status{
		Role: "host", CompVectors: 2,
		Handling: messaging.Handling{Handlers: []messaging.Handler{{}, {Number: 1, CPUs: cpus.List{0, 1, 2}, Spin: 20 * time.Microsecond}}},
	}
	show := func() string {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := printStatus(&out, raw); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	expect := func(words ...string) {
		t.Helper()
		text := show()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("the status does not say %q:\n%s", w, text)
			}
		}
	}
	expect("completion vectors  2, of the device", "handler 1", "processors 0-2", "polls for 20µs")
	s.Traffic = &messaging.Stats{
		Channels: []messaging.ChannelStats{{Handler: 2, CompVector: 1}, {Handler: 2, CompVector: 0}},
		Handlers: []messaging.HandlerStats{
			{Channels: []int{0}},
			{Handler: messaging.Handler{Number: 1}, Vector: 1, Channels: []int{}},
			{
				Handler: messaging.Handler{Number: 2, Priority: -5, Budget: 77}, Channels: []int{1, 2},
				Completions: 4711, Wakeups: 42, BudgetExhausted: 13,
				Workers: []messaging.WorkerStats{
					{Channel: 2, Role: messaging.RoleSender, Thread: 1234, CPUs: cpus.List{3}, Priority: -4},
					{Channel: 1, Role: messaging.RoleReceiver, Pending: true, Error: "out of paper"},
				},
			},
		},
	}
	expect("control channel, completion vector 0", "no queue, completion vector 1", "queues 1, 2, completion vector 0", "priority -5", "budget 77",
		"4711 completions, 42 wake-ups, budget exhausted 13 times", "sender of queue 2: thread 1234 on 3, priority -4",
		"receiver of queue 1: has not followed yet; refused: out of paper",
		"completion vector 1, and 0 from the next session on", "handler 2, completion vector 1")
}
