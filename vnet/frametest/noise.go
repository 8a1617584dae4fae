package frametest

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/splitnic/splitnic/vnet"
)

// places is the number of places in noise at which the content of a frame can begin.
const places = 1 << 16

// noise returns random bytes. Making them anew for each frame would be most of the work of a test
// under the race detector, which notes each write.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, places+vnet.MaxFrame)
	r := rand.New(rand.NewPCG(1, 1))
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
})

// Fill overwrites p, of at most vnet.MaxFrame bytes, with random bytes that follow from seed. Two
// seeds in 65536 have the same bytes.
func Fill(p []byte, seed uint64) {
	copy(p, noise()[rand.NewPCG(seed, 1).Uint64()%places:])
}
