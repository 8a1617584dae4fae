package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// TestPauseEnds lets each event that may help end a long pause. The pause must be over at once.
func TestPauseEnds(t *testing.T) {
	const long = 24 * time.Hour
	for name, want := range map[string]struct {
		after time.Duration
		first string
	}{
		"nothing":            {long, uplink.None},
		"list of I/O units":  {0, uplink.None},
		"reload":             {0, uplink.None},
		"fail-over":          {0, uplink.None},
		"fail-over to 10::2": {0, "10::2"},
		"end of the host":    {0, uplink.None},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				relisted, reloaded, commands := make(chan struct{}), make(chan struct{}), make(chan string, 1)
				began, first := time.Now(), make(chan string)
				go func() {
					p := pause{relisted: relisted, reloaded: reloaded, commands: commands}
					first <- p.wait(ctx, long)
				}()
				synctest.Wait()
				switch name {
				case "list of I/O units":
					close(relisted)
				case "reload":
					close(reloaded)
				case "fail-over":
					commands <- uplink.None
				case "fail-over to 10::2":
					commands <- "10::2"
				case "end of the host":
					cancel()
				}
				if got := <-first; got != want.first || time.Since(began) != want.after {
					t.Errorf("it begins with %q after %v", got, time.Since(began))
				}
			})
		})
	}
}
