package daemon

import (
	"crypto/sha256"
	"fmt"
	"time"

	limits "github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

const (
	// seriesBurst is the number of names of a key that become labels at once, and seriesRate is
	// the number of further ones per second. Each new name is some sixty new time series.
	seriesBurst = 512
	seriesRate  = 1. / 60
	// seriesName is the largest length of a label.
	seriesName = 64
	// seriesRemembered is the number of labels from which on those of absent hosts are forgotten.
	seriesRemembered = 4096
)

// hostSeries chooses the label with the name of each host. Hosts choose their names, and a
// monitoring system keeps the series of each name for a long time. So the names of a key are
// limited: further ones are other-1, other-2 and so on, while the host has a session.
type hostSeries struct {
	names  *limits.Keyed
	labels map[peer]string // by name and key
}

func newHostSeries() *hostSeries {
	return &hostSeries{names: limits.NewKeyed(seriesRate), labels: make(map[peer]string)}
}

// of returns the labels of hosts, in their order. No two of them are equal.
func (s *hostSeries) of(hosts []iounit.HostStatus, now time.Time) []peer {
	used, present := make(map[peer]bool), make(map[peer]bool)
	for p, label := range s.labels { // also those of absent hosts, which may come again
		used[peer{name: label, key: p.key}] = true
	}
	labels := make([]peer, 0, len(hosts))
	for i := range hosts {
		p := peerOf(&hosts[i])
		present[p] = true
		label, known := s.labels[p]
		if !known {
			label = shortened(p.name)
			if used[peer{name: label, key: p.key}] || s.names.Take(now, keyOf(&hosts[i]), 1, seriesBurst) > 0 {
				label = other(p.key, used)
			}
			s.labels[p] = label
			used[peer{name: label, key: p.key}] = true
		}
		labels = append(labels, peer{name: label, key: p.key})
	}
	for p, label := range s.labels {
		if !present[p] && (label != shortened(p.name) || len(s.labels) > seriesRemembered) {
			delete(s.labels, p)
		}
	}
	return labels
}

// other returns a label for a host of a key that gets none with its name.
func other(key string, used map[peer]bool) string {
	for n := 1; ; n++ {
		if label := fmt.Sprint("other-", n); !used[peer{name: label, key: key}] {
			return label
		}
	}
}

// shortened returns a name, or the beginning of a long one with a part of its hash.
func shortened(name string) string {
	if len(name) <= seriesName {
		return name
	}
	sum := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:9]
	return name[:seriesName-len(sum)] + sum
}

// peerOf returns the name and the key of a host. Several keys can have the same name; name and
// key together are unique.
func peerOf(h *iounit.HostStatus) peer {
	p := peer{name: h.Name, key: h.Fingerprint}
	if h.Insecure {
		p.key = ""
	}
	return p
}

// keyOf returns the key of the limit of a host's names. Hosts without keys have one limit.
func keyOf(h *iounit.HostStatus) limits.Key {
	f, err := session.ParseFingerprint(h.Fingerprint)
	if err != nil || h.Insecure {
		return limits.Key{}
	}
	return limits.PublicKey(f)
}
