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

// most is how many I/O units a host takes from one name. Each host has its own order, so
// that a longer list is used by all hosts together.
const most = 64

// Order is the order in which a host prefers the I/O units that records name: by priority,
// the lowest first, and within one by rendezvous hashing of the host's name with each
// I/O unit's address.
//
// RFC 2782 draws the order at random: of those that are left, each is next with a
// probability in proportion to its weight. The least of exponential variates, with the
// weights as their rates, has the same distribution. Here they come from a hash, and not
// from a random number: a host has the same order whenever and wherever it asks, and when
// an I/O unit is added or removed only those hosts have another first one that come to it or
// lose theirs. I/O units of weight 0 are the last of their priority, unless all are.
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

// uniform is a number above 0 and below 1 that looks random and depends on both words only.
func uniform(host, addr string) float64 {
	sum := sha256.Sum256([]byte(host + "\x00" + addr))
	return (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53)
}
