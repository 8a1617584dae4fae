package device

import (
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// mtuAge is how old the answer of PortMTU can be. Each session asks once a second, and a query can
// be several commands to the firmware.
const mtuAge = 900 * time.Millisecond

// PortMTU returns the active MTU of the port, in bytes, as it was at most a second ago.
func (d *Device) PortMTU() (int, error) {
	o, err := d.current()
	if err != nil {
		return 0, err
	}
	p, ok := o.Device.(interface{ PortMTU() (int, error) })
	if !ok {
		return 0, fmt.Errorf("device %s: MTU of the port: %w", d.name, fabric.ErrUnsupported)
	}
	m := &o.mtu
	m.mu.Lock()
	defer m.mu.Unlock()
	changes, now := m.changes.Load(), time.Now()
	if m.asked.IsZero() || now.Sub(m.asked) >= mtuAge || changes != m.after {
		m.bytes, m.err = p.PortMTU()
		m.asked, m.after = now, changes
	}
	return m.bytes, m.err
}
