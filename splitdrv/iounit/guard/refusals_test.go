package guard

import (
	"testing"
	"testing/synctest"
)

// TestRefusalsAreTold checks that each reason is passed on once.
func TestRefusalsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, done := newRefusals(), make(chan struct{})
		var told []string
		go r.Run(done, func(text string) { told = append(told, text) })
		for _, n := range []int{1, 1, 2} {
			for v := range verdict(n) {
				r.note(source+v, frame(Broadcast, machine, 60, 5))
			}
			synctest.Wait()
			if len(told) != n {
				t.Fatalf("%q", told)
			}
		}
		r.Forget()
		r.note(source, frame(Broadcast, machine, 60, 5))
		synctest.Wait()
		if len(told) != 3 || told[2] != told[0] {
			t.Errorf("%q", told)
		}
		close(done)
	})
}
