package fabric

import "context"

// Reap waits until a completion queue has completions, and returns how many it has put in out. It polls
// the queue, arms it, polls it again, because what completes before that raises no event, and only then
// sleeps.
func Reap(ctx context.Context, cq CQ, out []Completion) (int, error) {
	for armed := false; ; armed = !armed {
		n, err := cq.Poll(out)
		if n != 0 || err != nil {
			return n, err
		}
		if armed {
			err = cq.Wait(ctx)
		} else {
			err = cq.Arm(false)
		}
		if err != nil {
			return 0, err
		}
	}
}
