package flowmodel

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

const steps = 200

// setting reads a number or a duration from the environment.
func setting[T any](t *testing.T, name string, parse func(string) (T, error)) (value T, ok bool) {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return value, false
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value, true
}

func parseSeed(s string) (uint64, error) { return strconv.ParseUint(s, 0, 64) }

// TestFlow makes random runs in all modes. No run may fail.
func TestFlow(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			if seed, ok := setting(t, "SPLITNIC_SEED", parseSeed); ok {
				if m := run(seed, mode, true, rules{}, steps); m.failure != nil {
					t.Fatal(m.failure)
				}
				return
			}
			soak, soaking := setting(t, "SPLITNIC_SOAK", time.ParseDuration)
			end := time.Now().Add(soak)
			start := uint64(time.Now().UnixNano())
			var mu sync.Mutex
			done, walked := 0, 0
			var wg sync.WaitGroup
			for w := range uint64(2) {
				wg.Go(func() {
					for i := uint64(0); i < runs/2 || soaking && time.Now().Before(end); i++ {
						seed := start + 2*i + w
						m := run(seed, mode, true, rules{}, steps)
						mu.Lock()
						done++
						walked += m.steps
						mu.Unlock()
						if m.failure != nil {
							t.Errorf("SPLITNIC_SEED=%d: %v", seed, m.failure)
							return
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d runs, %d steps", done, walked)
		})
	}
}

// TestBrokenRules breaks one rule at a time, and expects that the model finds it. If this takes
// long, it starts from a seed that has found the broken rule before.
func TestBrokenRules(t *testing.T) {
	for _, c := range []struct {
		name string
		mode protocol.Mode
		rules
		from    uint64
		windows bool
	}{
		{"a control receive is posted after the elements are used", protocol.ModeImm, rules{lateRepost: true}, 0, false},
		{"an update is sent before the receives are posted", protocol.ModeImm, rules{updateFirst: true}, 0, false},
		{"an update is sent before the receives are posted", protocol.ModeSend, rules{updateFirst: true}, 0, false},
		{"an update is sent for each element", protocol.ModeImm, rules{eager: true}, 0, false},
		{"an update is sent for each element", protocol.ModeSend, rules{eager: true}, 0, false},
		{"something overtakes a serialised transfer", protocol.ModeImm, rules{overtaken: true}, 0, false},
		{"a pool is retired before what arrived is taken", protocol.ModeImm, rules{noDrain: true}, 0, false},
		{"indications are not bounded", protocol.ModeIndicate, rules{noWindow: true}, 0, false},
		{"a transfer is indicated before it has completed", protocol.ModeIndicate, rules{earlyIndicate: true}, 0, false},
		{"a transfer is indicated before it has completed", protocol.ModeImm, rules{earlyIndicate: true}, 0, false},
		{"a flush is answered before transfers have completed", protocol.ModeImm, rules{earlyRelease: true}, 0, false},
		{"a flush is answered before transfers are indicated", protocol.ModeIndicate, rules{earlyRelease: true}, 0, false},
		{"indications are not acknowledged", protocol.ModeIndicate, rules{noAcknowledge: true}, 0, false},
		{"a serialised transfer is not acknowledged", protocol.ModeImm, rules{noAcknowledge: true}, 0, false},
		{"nobody asks for the last completion of a pool", protocol.ModeImm, rules{noLastSignal: true}, 0, false},
		{"nobody says what was sent", protocol.ModeSendUC, rules{noSent: true}, 0, false},
		{"what was lost goes back before a quarter is free", protocol.ModeSendUC, rules{hastyReturn: true}, 0, false},
		{"a flush is over later than its reply", protocol.ModeImm, rules{lateTaken: true}, 159, false},
		{"a pool is taken back before it was offered", protocol.ModeImm, rules{earlyTakeBack: true}, 0, false},
		{"a reference is used before the reply that frees it", protocol.ModeIndicate, rules{earlyReuse: true}, 866, false},
		{"two requests for a pool at a time", protocol.ModeImm, rules{askTwice: true}, 0, false},
		{"two flushes at a time", protocol.ModeImm, rules{flushTwice: true}, 0, false},
		{"an update that does not fit is not sent", protocol.ModeIndicate, rules{partialUpdates: true}, 1149, false},
		{"the session ends before its last messages have arrived", protocol.ModeImm, rules{hastyEnd: true}, 8340, true},
		{"a first pool that comes late goes back", protocol.ModeImm, rules{lateExtra: true}, 0, true},
		{"a window is bound again with its last key", protocol.ModeImm, rules{staleKey: true}, 0, true},
		{"a pool is offered before its windows are bound", protocol.ModeImm, rules{unboundOffer: true}, 0, true},
		{"a pool is offered before its keys are sent", protocol.ModeIndicate, rules{offerFirst: true}, 0, true},
		{"elements are looked at while they can be written", protocol.ModeImm, rules{noRevoke: true}, 0, true},
		{"elements are looked at when they can be written again", protocol.ModeIndicate, rules{lateLook: true}, 0, true},
		{"elements go back before they can be written again", protocol.ModeImm, rules{unboundReturn: true}, 0, true},
		{"a pool is retired while its elements are gathered", protocol.ModeImm, rules{hastyRetire: true}, 0, true},
		{"a pool is deregistered while its windows are bound", protocol.ModeImm, rules{earlyDispose: true}, 0, true},
		{"both sides invalidate a window", protocol.ModeImm, rules{bothInvalidate: true}, 0, true},
		{"a window is invalidated before the pool is taken back", protocol.ModeIndicate, rules{earlyInvalidate: true}, 0,
			true},
		{"no receive is there for a message about a key", protocol.ModeIndicate, rules{noFurther: true}, 0, true},
		{"no receive is there for a message about a key", protocol.ModeImm, rules{noFurther: true}, 421, true},
		{"a pool is written to before its key has come", protocol.ModeImm, rules{keylessUse: true}, 0, true},
		{"a key is sent before its window is bound", protocol.ModeImm, rules{keyBeforeBind: true}, 0, true},
		{"a key is taken for that of another channel", protocol.ModeIndicate, rules{keyElsewhere: true}, 0, true},
		{"what is not revoked at the end is not counted", protocol.ModeImm, rules{forgetful: true}, 0, true},
	} {
		t.Run(fmt.Sprintf("%s, %s", c.mode, c.name), func(t *testing.T) {
			for seed := c.from; seed < c.from+20000; seed++ {
				m := run(seed, c.mode, c.windows, c.rules, 5*steps)
				if m.failure == nil {
					continue
				}
				if m.panicked {
					t.Fatalf("SPLITNIC_SEED=%d: %v", seed, m.failure)
				}
				t.Logf("found after %d runs: %v", seed-c.from+1, m.failure)
				if kept := run(seed, c.mode, c.windows, rules{}, 5*steps); kept.failure != nil {
					t.Errorf("that run fails with the rule kept, too: %v", kept.failure)
				}
				return
			}
			t.Error("not found")
		})
	}
}
