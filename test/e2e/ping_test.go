package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// pingSizes are payloads of echo requests: none, too short for a time stamp,
// the usual, full frames at both MTUs and one byte more, many fragments.
var pingSizes = []int{0, 1, 56, 1472, 1473, 8972, 20000, 65507}

// pinged matches ping's count of answers.
var pinged = regexp.MustCompile(`(\d+) received`)

// ping sends a few echo requests of size bytes; every answer has to come and
// to be what was sent.
func ping(t testing.TB, ns, to string, count, size int) {
	t.Helper()
	out, err := testenv.Command(t, ns, "ping", "-n", "-c", strconv.Itoa(count), "-i", "0.02", "-W", "20", "-s", strconv.Itoa(size), to).CombinedOutput()
	if err != nil {
		t.Errorf("ping %s with %d bytes: %v\n%s", to, size, err, out)
		return
	}
	m := pinged.FindSubmatch(out)
	if m == nil || string(m[1]) != strconv.Itoa(count) {
		t.Errorf("ping %s with %d bytes: not %d answers:\n%s", to, size, count, out)
	}
	for _, bad := range []string{"wrong data", "truncated", "DUP!", "BAD CHECKSUM"} {
		if strings.Contains(string(out), bad) {
			t.Errorf("ping %s with %d bytes: %s\n%s", to, size, bad, out)
		}
	}
}

func TestRDMAPing(t *testing.T) {
	r := newRig(t, "macvtap")
	h := r.host(t)
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprint("MTU ", mtu), func(t *testing.T) {
			if h.mtu() != mtu {
				r.setMTU(mtu)
			}
			for _, size := range pingSizes {
				ping(t, h.ns, addr(0), 2, size)
				ping(t, h.ns, addr6(0), 2, size)
			}
			// The longest frames there can be, towards the host too.
			ping(t, r.lan, h.addr(), 2, mtu-28)
			ping(t, r.lan, h.addr6(), 2, mtu-48)
		})
	}
}
