package direct

import (
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// origin watches the trust in the I/O unit that has made a direct connection. It has chosen the
// secret by which the two hosts know each other. Another I/O unit may permit the connection, but
// it cannot make a secret good that is known to somebody who is not trusted any more. Only one
// goroutine uses it.
type origin struct {
	of       *Session // in which it was offered
	security *session.Security
	changed  <-chan struct{} // closed when the trust has changed since the last check
	expired  <-chan time.Time
	timer    *time.Timer
	until    time.Time // when the certificate expires; zero: never
	checked  bool
}

// check returns an error if the I/O unit is not trusted any more. It verifies the I/O unit again
// only if that can have a new result.
func (o *origin) check() error {
	if o.checked && !closed(o.changed) && (o.until.IsZero() || time.Now().Before(o.until)) {
		return nil
	}
	o.checked = true
	o.changed = o.security.Changed() // before the trust is read
	var err error
	if o.until, err = o.of.StillTrusted(); err != nil {
		return err
	}
	o.stop()
	if o.expired = nil; !o.until.IsZero() {
		// A certificate is valid at its last moment. If this side's session with the I/O unit
		// was renewed, the next check finds the new certificate.
		o.until = o.until.Add(time.Millisecond)
		o.timer = time.NewTimer(time.Until(o.until))
		o.expired = o.timer.C
	}
	return nil
}

func (o *origin) stop() {
	if o.timer != nil {
		o.timer.Stop()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
