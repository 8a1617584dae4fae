// Package wake wakes goroutines that wait for a channel.
package wake

// Up wakes the goroutine that waits for c, a channel of capacity one, or nobody if c is nil. It never
// waits.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
