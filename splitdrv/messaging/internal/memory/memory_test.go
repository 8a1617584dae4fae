package memory

import (
	"errors"
	"strings"
	"testing"
)

// TestRefusals exceeds each limit, and reads the sizes in what is said about it.
func TestRefusals(t *testing.T) {
	const page = 64 << 10
	session := Memory{Limit: 2 * page}
	shared := Memory{Budget: NewBudget(3 * page)}
	for _, c := range []struct {
		of   *Memory
		take int
		want error
		says []string
	}{
		{&session, page, nil, nil},
		{&session, 2 * page, ErrMemory, []string{"64KiB", "128KiB"}},
		{&shared, page, nil, nil},
		{&shared, 3 * page, ErrBudget, []string{"64KiB of 192KiB", "192KiB more"}},
	} {
		a, err := c.of.Get(c.take, false)
		if !errors.Is(err, c.want) {
			t.Fatalf("%d bytes: %v, want %v", c.take, err, c.want)
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not say %s", err, s)
			}
		}
		if err == nil {
			t.Cleanup(func() { _ = c.of.Put(a) })
		}
	}
}
