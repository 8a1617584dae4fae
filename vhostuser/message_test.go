package vhostuser

import (
	"testing"
)

// FuzzMessage decodes arbitrary messages. A valid message has to be read completely.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{5, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint8(0))
	f.Add([]byte{12, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, fds uint8) {
		if len(b) < headerSize {
			return
		}
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		m := message{header: h, body: b[headerSize:], fds: make([]int, fds)}
		if m.check() != nil {
			return
		}
		switch m.request {
		case setMemTable, addMemReg, remMemReg:
			if n := len(m.regions()); m.request == setMemTable && n != len(m.fds) {
				t.Errorf("%d regions of %d descriptors", n, fds)
			}
		case setVringAddr:
			_, _ = m.vringAddr()
		case setVringKick, setVringCall, setVringErr:
			if _, fd, err := m.vringFD(); err == nil && (fd < 0) != (fds == 0) {
				t.Errorf("descriptor %d of %d", fd, fds)
			}
		case setVringNum, setVringBase, getVringBase, setVringEnable:
			m.vring()
		case setFeatures, setProtocolFeatures, netSetMTU, setStatus:
			m.number()
		default:
		}
	})
}
