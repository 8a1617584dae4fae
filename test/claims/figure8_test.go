package claims

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestRDMAFigure8WithImmediateData checks the cells on the wire. The first cell of a write has the
// virtual address and the memory handle, the cells in the middle have neither, the last cell has
// the transfer indication as immediate data, and each cell has a checksum. The channel adapters
// segment and reassemble writes that are too long for one cell.
func TestRDMAFigure8WithImmediateData(t *testing.T) {
	onSoftRoCE(t, func(t *testing.T, on fabricOf) { figure8(t, on, protocol.ModeImm) })
}

// TestRDMAFigure8WithoutImmediateData checks the same without immediate data: the transfer
// indication follows in a separate message on the other channel.
func TestRDMAFigure8WithoutImmediateData(t *testing.T) {
	onSoftRoCE(t, func(t *testing.T, on fabricOf) {
		p, w := figure8(t, on, protocol.ModeIndicate)
		p.until(func() error {
			n := 0
			for _, c := range w.to(p.qpns[unitSide][0]) {
				if m, err := protocol.DecodeBufferRDMAIndicate(c.payload); err == nil && c.opcode == sendOnly {
					n += m.Len()
				}
			}
			if want := len(p.writes(hostSide)); n != want {
				return fmt.Errorf("%d indications on the wire for %d writes", n, want)
			}
			return nil
		})
	})
}

func figure8(t *testing.T, on fabricOf, mode protocol.Mode) (*pair, *wiretap) {
	t.Helper()
	testenv.NeedRoot(t)
	p := newEndpoints(t, on, map[string]messaging.Config{hostSide: {Mode: mode}, unitSide: {Mode: mode}})
	w := tapWire(t, p.devices[unitSide].Name())
	p.connect()
	p.start()
	mtu := p.endpoints[unitSide].conn.Addresses()[1].MTU
	for _, n := range []int{100, 1000, 3 * mtu, 3*mtu + 100, 60000} {
		before := len(w.to(p.qpns[unitSide][1]))
		p.cross(hostSide, 0, n)
		writes := p.writes(hostSide)
		req := writes[len(writes)-1]
		want := (n + mtu - 1) / mtu
		var cells []cell
		p.until(func() error {
			cells = w.to(p.qpns[unitSide][1])[before:]
			if len(cells) < want {
				return fmt.Errorf("%d of %d cells of a write of %d bytes", len(cells), want, n)
			}
			return nil
		})
		if err := checkWriteCells(cells, req.send, req.data, mtu, mode == protocol.ModeImm); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	return p, w
}

// checkWriteCells checks the cells of one RDMA write.
func checkWriteCells(cells []cell, wr fabric.SendWR, data []byte, mtu int, imm bool) error {
	only, last := byte(writeOnly), byte(writeLast)
	if imm {
		only, last = writeOnlyImm, writeLastImm
	}
	var all []byte
	for i, c := range cells {
		var want byte
		switch {
		case len(cells) == 1:
			want = only
		case i == 0:
			want = writeFirst
		case i == len(cells)-1:
			want = last
		default:
			want = writeMiddle
		}
		if c.opcode != want {
			return fmt.Errorf("cell %d of %d has opcode %d, want %d", i, len(cells), c.opcode, want)
		}
		if i == 0 && (c.va != wr.RemoteAddr || c.rkey != wr.RKey || c.length != wr.Len) {
			return fmt.Errorf("the first cell is for %d bytes at %#x, key %#x; posted: %+v", c.length, c.va, c.rkey, wr)
		}
		if i < len(cells)-1 && len(c.payload) != mtu {
			return fmt.Errorf("cell %d of %d has %d bytes of data", i, len(cells), len(c.payload))
		}
		if imm && i == len(cells)-1 && c.imm != wr.Imm {
			return fmt.Errorf("immediate data %#x, posted was %#x", c.imm, wr.Imm)
		}
		if c.crc == 0 {
			return fmt.Errorf("cell %d has no checksum", i)
		}
		all = append(all, c.payload...)
	}
	if string(all) != string(data) {
		return fmt.Errorf("the cells carry %d bytes, differing from the %d of the frame", len(all), len(data))
	}
	return nil
}
