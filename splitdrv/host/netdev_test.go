package host

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

// watched is a netdevice whose Watch does the next of its steps in each call, and waits after the
// last one.
type watched struct {
	Netdevice
	steps []func(fn func(tap.State)) error
}

func (w *watched) Watch(ctx context.Context, fn func(tap.State)) error {
	if len(w.steps) == 0 {
		<-ctx.Done()
		return nil
	}
	step := w.steps[0]
	w.steps = w.steps[1:]
	return step(fn)
}

// warnings counts records of level warn.
type warnings struct {
	slog.Handler
	n int
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		w.n++
	}
	return nil
}

// TestWatchWarnsOnce has a netdevice that cannot be watched for a long time, for example because it
// was moved to a namespace that this process may not enter. It expects one warning for each reason,
// and again after a successful watch.
func TestWatchWarnsOnce(t *testing.T) {
	fails := func(why string) func(func(tap.State)) error {
		return func(func(tap.State)) error { return errors.New(why) }
	}
	works := func(fn func(tap.State)) error { fn(tap.State{}); return errors.New("moved") }
	for _, c := range []struct {
		name  string
		steps []func(func(tap.State)) error
		want  int
	}{
		{"same reason", []func(func(tap.State)) error{fails("moved"), fails("moved"), fails("moved"), fails("moved")}, 1},
		{"another reason", []func(func(tap.State)) error{fails("moved"), fails("denied"), fails("denied")}, 2},
		{"again", []func(func(tap.State)) error{fails("moved"), fails("moved"), works, fails("moved")}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 100*watchRetry)
				defer cancel()
				log := &warnings{}
				d := newNetdev(&Config{Netdev: &watched{steps: c.steps}, Log: slog.New(log)}, nil)
				if err := d.watch(ctx); err != nil {
					t.Fatal(err)
				}
				if log.n != c.want {
					t.Errorf("%d warnings, want %d", log.n, c.want)
				}
			})
		})
	}
}

// slow is a netdevice whose first SetSpeed fails.
type slow struct {
	carried
	calls *int
}

func (s slow) SetSpeed(int) error {
	if *s.calls++; *s.calls == 1 {
		return errors.New("not now")
	}
	return nil
}

// TestSpeedIsTriedAgain has the netdevice refuse a speed. It expects the speed to be set again with
// the next report of the same link, and then no more.
func TestSpeedIsTriedAgain(t *testing.T) {
	calls := 0
	cfg := &Config{Netdev: slow{calls: &calls}, Log: slog.New(slog.DiscardHandler)}
	d := newNetdev(cfg, &sessions{cfg: cfg})
	for i, want := range []int{1, 2, 2} {
		if err := d.setLink(session.Link{Up: true, SpeedMbps: 1000}); err != nil || calls != want {
			t.Errorf("report %d: %v, %d calls, want %d", i, err, calls, want)
		}
	}
}
