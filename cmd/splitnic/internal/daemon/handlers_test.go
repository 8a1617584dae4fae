package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// TestMakeHandlers makes the handlers for three queues and four completion vectors.
func TestMakeHandlers(t *testing.T) {
	cpu := cpus.Allowed()[:1]
	one := func(format string) string { return fmt.Sprintf(format, cpu) }
	text := func(all []cq.Handler) string {
		var b strings.Builder
		for _, h := range all {
			fmt.Fprintf(&b, "%d:%v/%d/%d/%v ", h.Number, h.CPUs, h.Priority, h.Budget, h.Spin)
			if h.Adaptive {
				b.WriteString("at most ")
			}
		}
		return strings.TrimSpace(b.String())
	}
	for _, c := range []struct {
		h    Handlers
		want string // the handlers, or what the error says
	}{
		{Handlers{}, ""},
		{Handlers{Spin: 20 * time.Microsecond}, ""},
		{Handlers{Number: 2}, "0:/0/256/0s 1:/0/256/0s 2:/0/256/0s"},
		{Handlers{Budget: 9, Spin: time.Millisecond}, "0:/0/9/0s 1:/0/9/1ms 2:/0/9/1ms 3:/0/9/1ms"},
		{Handlers{Number: 1, Spin: time.Millisecond, Adaptive: true}, "0:/0/256/0s 1:/0/256/1ms at most"},
		{Handlers{Number: 2, Spread: cpu}, one("0:/0/256/0s 1:%[1]v/0/256/0s 2:%[1]v/0/256/0s")},
		{Handlers{Number: 1, CPUs: map[int]cpus.List{0: cpu, 1: cpu}}, one("0:%[1]v/0/256/0s 1:%[1]v/0/256/0s")},
		{Handlers{Number: 2, Priority: 5}, "0:/0/256/0s 1:/5/256/0s 2:/5/256/0s"},
		{Handlers{Number: 2, Priorities: map[int]int{0: 3, 2: 0}}, "0:/3/256/0s 1:/0/256/0s 2:/0/256/0s"},
		{Handlers{CPUs: map[int]cpus.List{4: cpu}}, "advanced.handler-cpus: there is no handler 4"},
		{Handlers{Priorities: map[int]int{4: 1}}, "advanced.handler-priority: there is no handler 4"},
		{Handlers{Spread: cpus.List{1023}}, "this machine has"},
		{Handlers{Priority: 20}, "-20 (first) to 19 (last)"},
	} {
		if c.h.Budget == 0 {
			c.h.Budget = cq.DefaultBudget
		}
		got, err := c.h.Make(3, 4)
		switch {
		case err != nil && (exit.Status(err) != exit.Usage || c.want == "" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.h, err, c.want)
		case err == nil && text(got) != c.want:
			t.Errorf("%+v:\n%s, want\n%s", c.h, text(got), c.want)
		}
	}
}
