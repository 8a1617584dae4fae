package discovery

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Record is an SRV record that names an I/O unit.
type Record struct {
	Priority uint16 `json:"priority"`
	Weight   uint16 `json:"weight"`
	Port     uint16 `json:"port"`
	Target   string `json:"target"` // name in lower case, without a dot at its end
}

// Answer is the answer of DNS for a name.
type Answer struct {
	Records []Record      // at least one
	TTL     time.Duration // shortest time to live of the records
	Skipped int           // number of further SRV records, which name no host and port
}

// The errors of answers without I/O units.
var (
	errNoName    = errors.New("the name does not exist")
	errNoRecords = errors.New("the name has no SRV records")
	errNoService = errors.New("the SRV record says that there is no such service: its target is \".\"")
	errAliases   = fmt.Errorf("more than %d aliases (CNAME)", maxAliases)
)

// maxAliases is the largest number of CNAME records that are followed from a name.
const maxAliases = 8

// read reads a reply to a query for a name's SRV records. If the reply has an alias of the
// name without records, the caller has to query the alias; a then has the time to live so
// far.
func read(reply *dns.Msg, name string) (a Answer, alias string, err error) {
	if reply.Rcode == dns.RcodeNameError {
		return a, "", errNoName
	}
	ttl := ^uint32(0)
	for range maxAliases + 1 {
		found, unavailable, next := false, false, ""
		for _, rr := range reply.Answer {
			if rr == nil || !strings.EqualFold(rr.Header().Name, name) || rr.Header().Class != dns.ClassINET {
				continue
			}
			switch rr := rr.(type) {
			case *dns.SRV:
				found, ttl = true, min(ttl, rr.Hdr.Ttl)
				if target, ok := hostName(rr.Target); ok && rr.Port != 0 {
					a.Records = append(a.Records, Record{rr.Priority, rr.Weight, rr.Port, target})
				} else {
					a.Skipped++
				}
				unavailable = unavailable || rr.Target == "."
			case *dns.CNAME:
				ttl, next = min(ttl, rr.Hdr.Ttl), rr.Target
			}
		}
		a.TTL = time.Duration(ttl) * time.Second
		switch {
		case len(a.Records) > 0:
			return a, "", nil
		case unavailable && a.Skipped == 1:
			return a, "", errNoService
		case found:
			return a, "", fmt.Errorf("none of its %d SRV records names a host and port", a.Skipped)
		case next == "":
			if alias == "" {
				return a, "", errNoRecords
			}
			return a, alias, nil
		}
		name, alias = next, next
	}
	return Answer{}, "", errAliases
}

// hostName returns a target in the form in which it is dialled, if it is valid.
func hostName(target string) (name string, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(target, "."))
	return name, validName(name)
}
