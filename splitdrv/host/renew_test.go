package host

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

func TestRenewIn(t *testing.T) {
	begins := time.Unix(1_000_000, 0)
	hour := session.Term{Begins: begins, Expires: begins.Add(time.Hour)}
	for _, tt := range []struct {
		name  string
		at    time.Duration // since the beginning of the term
		tried bool
		share float64
		want  time.Duration // less than 0: never
	}{
		{"at the beginning, the latest", 0, false, 0, 40 * time.Minute},
		{"at the beginning, the earliest", 0, false, 1, 30 * time.Minute},
		{"later", 20 * time.Minute, false, 0.5, 15 * time.Minute},
		{"it is time", 40 * time.Minute, false, 0, 0},
		{"it is high time", 59 * time.Minute, false, 1, 0},
		{"tried", 40 * time.Minute, true, 0, 5 * time.Minute},
		{"tried, the latest", 40 * time.Minute, true, 1, 10 * time.Minute},
		{"tried at the end", time.Hour - time.Millisecond, true, 0, shortestRenewal},
		{"over", time.Hour, false, 0, -1},
		{"tried, and over", 61 * time.Minute, true, 1, -1},
	} {
		wait, ok := renewIn(hour, begins.Add(tt.at), tt.tried, tt.share)
		if !ok {
			wait = -1
		}
		if d := wait - tt.want; d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("%s: in %v, want %v", tt.name, wait, tt.want)
		}
	}
}

// TestRenewalsEnd counts the attempts to renew a session whose certificates are never renewed. It
// expects at least five, and a limited number.
func TestRenewalsEnd(t *testing.T) {
	begins := time.Unix(1_000_000, 0)
	for life, most := range map[time.Duration]int{10 * time.Second: 40, time.Hour: 60, 365 * 24 * time.Hour: 100} {
		for _, share := range []float64{0, 0.999999} {
			term := session.Term{Begins: begins, Expires: begins.Add(life)}
			now, n := begins, 0
			for n <= most {
				wait, ok := renewIn(term, now, n > 0, share)
				if !ok {
					break
				}
				now = now.Add(wait)
				n++
			}
			if n < 5 || n > most {
				t.Errorf("%d attempts in %v", n, life)
			}
		}
	}
}
