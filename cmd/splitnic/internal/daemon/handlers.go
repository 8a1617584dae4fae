package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// Handlers is the configuration of the completion-queue handlers.
type Handlers struct {
	Number     int               // of data handlers; 0 for the default
	Budget     int               // completions in a row
	Spin       time.Duration     // polling before sleeping
	Adaptive   bool              // Spin is the maximum
	Spread     cpus.List         // processors to distribute among the data handlers
	CPUs       map[int]cpus.List // processors, by handler number
	Priority   int               // of the data handlers
	Priorities map[int]int       // by handler number
	IRQ        IRQAffinity       // empty means off
}

// bound reports whether any handler is bound to processors or has a priority.
func (h *Handlers) bound() bool {
	return h.Spread != nil || h.CPUs != nil || h.Priority != 0 || h.Priorities != nil || h.IRQ == IRQFollow
}

// Make makes the handlers for that many queues and completion vectors. It returns nil for the
// default handlers, and an error if this machine does not allow the handlers.
func (h *Handlers) Make(queues, vectors int) ([]cq.Handler, error) {
	if h.Number == 0 && h.Budget == cq.DefaultBudget && !h.bound() {
		return nil, nil
	}
	n := cmp.Or(h.Number, max(1, min(vectors, queues)))
	all := make([]cq.Handler, 1+n)
	for i := range all {
		all[i] = cq.Handler{Number: i, Budget: h.Budget}
		if i != cq.ControlHandler {
			all[i].Spin, all[i].Adaptive, all[i].Priority = h.Spin, h.Adaptive, h.Priority
		}
	}
	if h.Spread != nil {
		for i, share := range h.Spread.Spread(n) {
			all[1+i].CPUs = share
		}
	}
	for number, list := range h.CPUs {
		if number > n {
			return nil, UnknownHandler("advanced.handler-cpus", number, n)
		}
		all[number].CPUs = list
	}
	for number, priority := range h.Priorities {
		if number > n {
			return nil, UnknownHandler("advanced.handler-priority", number, n)
		}
		all[number].Priority = priority
	}
	for _, x := range all {
		if err := allowed(x); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func allowed(h cq.Handler) error {
	err := messaging.Config{Handlers: []cq.Handler{h}}.Check()
	switch {
	case errors.Is(err, cq.ErrPriority) && h.Priority >= -20 && h.Priority <= 19:
		return exit.With(exit.Permission, fmt.Errorf("advanced.handler-priority: %w", err))
	case errors.Is(err, cq.ErrPriority):
		return exit.Usagef("advanced.handler-priority: %w", err)
	case err != nil:
		return exit.Usagef("advanced.handler-cpus: %w", err)
	}
	return nil
}

// UnknownHandler returns the error for a handler number that is larger than the last one.
func UnknownHandler(flag string, number, last int) error {
	return exit.Usagef("%s: there is no handler %d, only 0, of the control channel, and 1 to %d; "+
		"advanced.handlers makes more", flag, number, last)
}

// boundProcs returns the number of Ps to add for that many queues of at most that many sessions,
// if their workers may be bound to threads. A bound worker keeps its P while another thread runs
// on its processor.
func boundProcs(queues, sessions int) int { return min(2*queues*sessions, 256) }

// HandlersRequest is the argument of CommandHandlers.
type HandlersRequest struct {
	Host   string           `json:"host,omitempty"` // at an I/O unit
	Change cq.HandlerChange `json:"change"`
}

// handlersCommand returns the command of a daemon that changes its handlers. Afterwards the
// workers may need procs additional Ps.
func handlersCommand(change func(HandlersRequest) error, procs int) statussock.Command {
	run := func(_ context.Context, request HandlersRequest) (any, error) {
		for _, h := range request.Change.Handlers {
			if h.CPUs != nil || h.Priority != nil {
				MoreProcs(procs)
			}
		}
		return struct{}{}, change(request)
	}
	return statussock.Command{Name: CommandHandlers, RunWith: with(run)}
}
