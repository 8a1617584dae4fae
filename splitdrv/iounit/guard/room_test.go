package guard

import (
	"testing"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// roomy is a queue of a LAN whose descriptor is readable when it has room, such as that of a
// vhost-user port.
type roomy struct{ lan.Queue }

func (roomy) RoomIsReadable() bool { return true }

// TestRoomIsReadable checks that a policed port reports the same RoomIsReadable as its queue. A
// receiver that waits for the wrong event would never go on.
func TestRoomIsReadable(t *testing.T) {
	for _, c := range []struct {
		queue lan.Queue
		want  bool
	}{{roomy{}, true}, {nil, false}} {
		var p messaging.Port = &policed{queue: c.queue}
		if r, ok := p.(messaging.ReadablePort); (ok && r.RoomIsReadable()) != c.want {
			t.Errorf("of %T: not %v", c.queue, c.want)
		}
	}
}
