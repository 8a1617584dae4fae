package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net"
	"slices"
	"strconv"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// most is the largest number of I/O units that a host uses from one name. Each host has its
// own order, so that all I/O units of a longer list are used.
const most = 64

// Order returns the I/O units of records in a host's order of preference: by priority, the
// lowest first, and within a priority by rendezvous hashing of the host's name with each I/O
// unit's address.
//
// RFC 2782 uses a random order: each of the remaining ones is next with a probability
// proportional to its weight. The smallest of exponential variates, with the weights as
// rates, has the same distribution. Here the variates are computed from a hash, not from
// random numbers. So a host always has the same order, and when an I/O unit is added or
// removed, only the hosts that get or lose it as their first one change. I/O units of weight
// 0 are the last ones of their priority, unless all have weight 0.
func Order(host string, records []Record) uplink.Candidates {
	type ranked struct {
		Record
		addr  string
		score float64
	}
	list := make([]ranked, 0, len(records))
	for _, r := range records {
		addr := net.JoinHostPort(r.Target, strconv.Itoa(int(r.Port)))
		list = append(list, ranked{r, addr, -math.Log(uniform(host, addr)) / float64(max(r.Weight, 1))})
	}
	slices.SortFunc(list, func(a, b ranked) int {
		if a.Priority == b.Priority && (a.Weight == 0) != (b.Weight == 0) {
			return cmp.Compare(b.Weight, a.Weight)
		}
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.score, b.score), cmp.Compare(a.addr, b.addr))
	})
	addrs := make([]string, 0, len(list))
	for _, r := range list {
		addrs = append(addrs, r.addr)
	}
	units := uplink.Distinct(addrs)
	return units[:min(len(units), most)]
}

// uniform returns a pseudo-random number between 0 and 1 that depends only on its arguments.
func uniform(host, addr string) float64 {
	sum := sha256.Sum256([]byte(host + "\x00" + addr))
	return (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53)
}
