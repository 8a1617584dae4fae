package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// handlerFlags are the flags about completion-queue handlers.
type handlerFlags struct {
	handlers   int
	cpus       string
	priority   string
	pollBudget int
	spin       time.Duration
}

func (h *handlerFlags) add(f *pflag.FlagSet) {
	f.IntVar(&h.handlers, "handlers", 0, fmt.Sprintf("completion-queue handlers for data, up to %d; queues are dealt out to them in turn (default: one for each completion vector of the device, and no more than queues)", messaging.MaxHandlers))
	f.StringVar(&h.cpus, "handler-cpus", "", "processors for the handlers: a list such as 0-3,8, spread over them, or HANDLER:LIST for each, such as 1:0,2:2-3; handler 0 is the control channel's (default: any)")
	f.StringVar(&h.priority, "handler-priority", "", "priority of the handlers' threads, -20 (first) to 19 (last), or latency or normal, for -10 and 0; or HANDLER:PRIORITY for each, such as 1:latency,2:5 (default: normal)")
	f.IntVar(&h.pollBudget, "poll-budget", messaging.DefaultBudget, "completions that are handled in a row before others get their turn")
	f.DurationVar(&h.spin, "spin", 0, "time to poll before sleeping; costs a processor, saves some microseconds")
}

// priorityClasses are priorities that have a name.
var priorityClasses = map[string]int{"normal": 0, "latency": -10}

func parsePriority(text string) (int, error) {
	if n, ok := priorityClasses[text]; ok {
		return n, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no priority: must be -20 (first) to 19 (last), latency or normal", text)
	}
	return n, nil
}

// perHandler reads HANDLER:VALUE,HANDLER:VALUE…, where a value may have commas of
// its own; ok is false if text is no such thing but one value for all.
func perHandler(text string) (values map[int]string, ok bool, err error) {
	if !strings.Contains(text, ":") {
		return nil, false, nil
	}
	values = map[int]string{}
	last := -1
	for part := range strings.SplitSeq(text, ",") {
		number, value, isNew := strings.Cut(part, ":")
		if !isNew {
			if last < 0 {
				return nil, true, fmt.Errorf("%q is for no handler: must be HANDLER:%s", part, part)
			}
			values[last] += "," + part
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > messaging.MaxHandlers {
			return nil, true, fmt.Errorf("%q is no handler: must be 0 to %d", number, messaging.MaxHandlers)
		}
		if _, twice := values[n]; twice {
			return nil, true, fmt.Errorf("handler %d is there twice", n)
		}
		values[n], last = value, n
	}
	return values, true, nil
}

// wanted reports whether any flag asks for handlers that are not the default.
func (h *handlerFlags) wanted() bool {
	return h.handlers != 0 || h.cpus != "" || h.priority != "" || h.pollBudget != messaging.DefaultBudget
}

// bound reports whether any handler is bound to processors or has a priority.
func (h *handlerFlags) bound() bool { return h.cpus != "" || h.priority != "" }

// apply sets what the flags say, for as many queues and completion vectors.
func (h *handlerFlags) apply(m *messaging.Config, queues, vectors int) error {
	m.Spin = h.spin
	if h.spin < 0 || h.spin > messaging.MaxSpin {
		return usageError{fmt.Errorf("--spin %v: must be 0 to %v", h.spin, messaging.MaxSpin)}
	}
	if h.pollBudget < 1 || h.pollBudget > messaging.MaxBudget {
		return usageError{fmt.Errorf("--poll-budget %d: must be 1 to %d", h.pollBudget, messaging.MaxBudget)}
	}
	if h.handlers < 0 || h.handlers > messaging.MaxHandlers {
		return usageError{fmt.Errorf("--handlers %d: must be 1 to %d, or 0 for the default", h.handlers, messaging.MaxHandlers)}
	}
	if !h.wanted() {
		return nil
	}
	n := h.handlers
	if n == 0 {
		n = max(1, min(vectors, queues))
	}
	all := make([]messaging.Handler, 1+n)
	for i := range all {
		all[i] = messaging.Handler{Number: i, Budget: h.pollBudget, Spin: h.spin}
	}
	all[messaging.ControlHandler].Spin = 0
	if err := h.setCPUs(all); err != nil {
		return err
	}
	if err := h.setPriorities(all); err != nil {
		return err
	}
	for _, x := range all {
		err := messaging.Config{Handlers: []messaging.Handler{x}}.Check()
		switch {
		case errors.Is(err, messaging.ErrPriority):
			err = fmt.Errorf("--handler-priority: %w", err)
			if x.Priority >= -20 && x.Priority <= 19 {
				return exitError{code: exitPermission, err: err}
			}
			return usageError{err}
		case err != nil:
			return usageError{fmt.Errorf("--handler-cpus: %w", err)}
		}
	}
	m.Handlers = all
	return nil
}

func (h *handlerFlags) setCPUs(all []messaging.Handler) error {
	values, each, err := perHandler(h.cpus)
	if err != nil {
		return usageError{fmt.Errorf("--handler-cpus: %w", err)}
	}
	for number, text := range values {
		if number >= len(all) {
			return unknownHandler("--handler-cpus", number, len(all)-1)
		}
		if all[number].CPUs, err = cpus.Parse(text); err != nil {
			return usageError{fmt.Errorf("--handler-cpus: handler %d: %w", number, err)}
		}
	}
	if each || h.cpus == "" {
		return nil
	}
	list, err := cpus.Parse(h.cpus)
	if err != nil {
		return usageError{fmt.Errorf("--handler-cpus: %w", err)}
	}
	for i, share := range list.Spread(len(all) - 1) {
		all[1+i].CPUs = share
	}
	return nil
}

func (h *handlerFlags) setPriorities(all []messaging.Handler) error {
	if h.priority == "" {
		return nil
	}
	values, each, err := perHandler(h.priority)
	if err != nil {
		return usageError{fmt.Errorf("--handler-priority: %w", err)}
	}
	if !each {
		values = map[int]string{}
		for i := range all[1:] {
			values[1+i] = h.priority
		}
	}
	for number, text := range values {
		if number >= len(all) {
			return unknownHandler("--handler-priority", number, len(all)-1)
		}
		if all[number].Priority, err = parsePriority(text); err != nil {
			return usageError{fmt.Errorf("--handler-priority: %w", err)}
		}
	}
	return nil
}

func unknownHandler(flag string, number, last int) error {
	return usageError{fmt.Errorf("%s: there is no handler %d, only 0, of the control channel, and 1 to %d; --handlers makes more", flag, number, last)}
}

// boundProcs is how many Ps to add for queues of up to so many sessions whose
// workers may be bound to threads: one of them keeps its P while another thread
// has its processor.
func boundProcs(queues, sessions int) int { return min(2*queues*sessions, 256) }
