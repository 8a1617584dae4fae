package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// Handlers is what users are shown about handlers.
type Handlers struct {
	CompVectors int                       `json:"comp_vectors"`
	Handling    cq.Handling               `json:"handling"`           // in force, and for the next session
	Handlers    []cq.HandlerStats         `json:"handlers,omitempty"` // of the present session
	Channels    []messaging.ChannelVector `json:"channels,omitempty"` // of the present session
	Interrupts  daemon.Interrupts         `json:"interrupts"`         // of the device
}

// NewHandlers returns the Handlers of an endpoint. s has the counters of the present session; nil
// if there is none.
func NewHandlers(vectors int, irqs daemon.Interrupts, g cq.Handling, s *messaging.Stats) *Handlers {
	v := &Handlers{CompVectors: vectors, Interrupts: irqs, Handling: g}
	if s != nil {
		v.Handlers, v.Channels = s.Handlers, s.Vectors()
	}
	return v
}

// Pending reports whether a worker has not applied a change yet.
func (v *Handlers) Pending() bool {
	for _, h := range v.Handlers {
		for _, w := range h.Workers {
			if w.Pending {
				return true
			}
		}
	}
	return false
}

// Print prints v.
func (v *Handlers) Print(w io.Writer, indent string) {
	fmt.Fprintf(w, "%scompletion vectors\t%d, of the device\n", indent, v.CompVectors)
	printInterrupts(w, indent, &v.Interrupts)
	if v.Handlers == nil {
		for _, h := range v.Handling.Handlers {
			fmt.Fprintf(w, "%shandler %d\t%s\n", indent, h.Number, handlerText(&h))
		}
		return
	}
	for i := range v.Handlers {
		h := &v.Handlers[i]
		fmt.Fprintf(w, "%shandler %d\t%s, completion vector %d: %s\n", indent, h.Number, channelsText(h.Channels), h.Vector,
			handlerText(&h.Handler))
		fmt.Fprintf(w, "%s\t%s, %s, budget exhausted %s\n", indent, Counted(h.Completions, "completion"),
			Counted(h.Wakeups, "wake-up"), Counted(h.BudgetExhausted, "time"))
		for _, x := range h.Workers {
			if text := workerText(&x); text != "" {
				fmt.Fprintf(w, "%s\t%s of %s: %s\n", indent, x.Role, channelsText([]int{x.Channel}), text)
			}
		}
	}
	for _, c := range v.Channels {
		if c.Handler == cq.Unassigned {
			fmt.Fprintf(w, "%squeue %d\tno handler, completion vector %d\n", indent, c.Channel, c.Vector)
			continue
		}
		if c.Vector != c.HandlerVector {
			fmt.Fprintf(w, "%squeue %d\tcompletion vector %d, and %d from the next session on\n", indent, c.Channel, c.Vector,
				c.HandlerVector)
		}
	}
}

// printInterrupts prints the interrupts of an adapter. Soft-RoCE has none.
func printInterrupts(w io.Writer, indent string, s *daemon.Interrupts) {
	for i := range s.Vectors {
		v := &s.Vectors[i]
		chosen := ""
		if len(v.Effective) > 0 {
			chosen = fmt.Sprintf(", goes to %v", v.Effective)
		}
		fmt.Fprintf(w, "%svector %d\tinterrupt %d, %s, may go to processors %v%s\n", indent, v.Number, v.IRQ, v.Name, v.CPUs,
			chosen)
	}
	if s.Balancer != 0 {
		fmt.Fprintf(w, "%sirqbalance\tprocess %d, may move interrupts\n", indent, s.Balancer)
	}
	if s.Error != "" {
		fmt.Fprintf(w, "%sinterrupts\tunknown: %s\n", indent, s.Error)
	}
}

func handlerText(h *cq.Handler) string {
	where := "any processor"
	if len(h.CPUs) > 0 {
		where = "processors " + h.CPUs.String()
	}
	polls := fmt.Sprintf("polls for %v", h.Spin)
	if h.Adaptive {
		polls = fmt.Sprintf("polls for up to %v, adaptively", h.Spin)
	}
	return fmt.Sprintf("%s, priority %d, budget %d, %s", where, h.Priority, h.Budget, polls)
}

// channelsText returns the names of channels, such as "queues 1, 3".
func channelsText(channels []int) string {
	switch {
	case len(channels) == 0:
		return "no queue"
	case channels[0] == 0:
		return "control channel"
	case len(channels) == 1:
		return fmt.Sprintf("queue %d", channels[0])
	}
	var names []string
	for _, c := range channels {
		names = append(names, strconv.Itoa(c))
	}
	return "queues " + strings.Join(names, ", ")
}

// workerText describes the thread of a worker, if it is bound to one, and changes that it has not
// applied or that were refused.
func workerText(x *cq.WorkerStats) string {
	var text []string
	if x.Thread != 0 {
		text = append(text, fmt.Sprintf("thread %d on %v, priority %d", x.Thread, x.CPUs, x.Priority))
	}
	if x.Pending {
		text = append(text, "has not followed yet")
	}
	if x.Error != "" {
		text = append(text, "refused: "+x.Error)
	}
	return strings.Join(text, "; ")
}
