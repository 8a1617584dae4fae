//go:build cgo

package verbs_test

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
)

// TestRDMARelaxedOrdering registers memory with the optional access flag for relaxed ordering,
// together with other access flags. Soft-RoCE does not know this flag and has to ignore it.
// TestRDMAConformance tests that such memory works like other memory.
func TestRDMARelaxedOrdering(t *testing.T) {
	dom := must(openDevice(t, 0).NewDomain())(t)
	for _, a := range []fabric.Access{0, fabric.LocalWrite, fabric.LocalWrite | fabric.RemoteWrite,
		fabric.LocalWrite | fabric.WindowBind, fabric.RemoteRead} {
		r := must(dom.Register(conform.Alloc(t, 1<<16), a|fabric.Relaxed))(t)
		if r.Len() != 1<<16 || r.LKey() == 0 {
			t.Errorf("rights %b: region of %d bytes with key %#x", a, r.Len(), r.LKey())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
