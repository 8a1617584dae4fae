package pace

import (
	"testing"
	"time"
)

func TestKeyed(t *testing.T) {
	k := NewKeyed[string](10)
	now := time.Unix(1000, 0)
	spend := func(key string, n, burst int, want time.Duration) {
		t.Helper()
		if got := k.Spend(now, key, n, burst); got.Round(time.Millisecond) != want {
			t.Errorf("%s waits %v to spend %d of %d, want %v", key, got, n, burst, want)
		}
	}
	spend("a", 20, 20, 0)
	spend("a", 1, 20, 100*time.Millisecond)
	spend("a", 2, 20, 300*time.Millisecond) // behind the one before
	spend("b", 20, 20, 0)                   // which is another one
	now = now.Add(time.Second)
	spend("a", 7, 20, 0)
	spend("a", 1, 20, 100*time.Millisecond)
	now = now.Add(time.Hour)
	spend("a", 20, 20, 0) // no more is saved up
	spend("a", 1, 20, 100*time.Millisecond)
	spend("c", 50, 20, 0) // more than the burst at once
	spend("c", 1, 20, 100*time.Millisecond)
}

// TestKeyedForgets has more keys than are remembered: those that lack most are.
func TestKeyedForgets(t *testing.T) {
	k := NewKeyed[int](10)
	now := time.Unix(1000, 0)
	k.Spend(now, -1, 20, 20)
	k.Spend(now, -1, 20, 20)
	for i := range 10 * maxKeys {
		if d := k.Spend(now, i, 1, 20); d != 0 {
			t.Fatalf("key %d waits %v", i, d)
		}
	}
	if len(k.by) > maxKeys {
		t.Errorf("%d keys are remembered, at most %d", len(k.by), maxKeys)
	}
	if d := k.Spend(now, -1, 1, 20); d.Round(time.Millisecond) != 2100*time.Millisecond {
		t.Errorf("the key that has spent most waits %v, want 2.1s", d)
	}
	now = now.Add(time.Hour)
	k.Spend(now, -2, 1, 20)
	if len(k.by) != 1 {
		t.Errorf("%d keys are remembered when all but one lack nothing", len(k.by))
	}
}
