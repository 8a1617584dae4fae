package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// longestLookup is the time-out for all queries of a name.
	longestLookup = 30 * time.Second
	// longestReply is the longest time-out for the reply of a server.
	longestReply = 5 * time.Second
	// mostServers is the limit of resolv.conf(5).
	mostServers = 3
	// udpSize is the size in bytes of the largest reply by UDP, which no network has to
	// fragment. A longer reply is requested again by TCP.
	udpSize = 1232
)

// Resolver queries the servers in a file in the format of resolv.conf(5). It uses servers,
// search list, ndots, timeout and attempts, and reads the file for each lookup.
type Resolver struct {
	Path string // default /etc/resolv.conf
	port string // port of the servers; default 53
}

// Lookup queries the SRV records of a name. A name that does not end with a dot is also tried
// in the domains of the search list.
func (r *Resolver) Lookup(ctx context.Context, name string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, longestLookup)
	defer cancel()
	conf, err := dns.ClientConfigFromFile(cmp.Or(r.Path, "/etc/resolv.conf"))
	if err != nil {
		return Answer{}, fmt.Errorf("DNS servers: %w", err)
	}
	conf.Port = cmp.Or(r.port, conf.Port)
	if len(conf.Servers) == 0 {
		conf.Servers = []string{"127.0.0.1", "::1"}
	}
	conf.Servers = conf.Servers[:min(len(conf.Servers), mostServers)]
	var first error
	for _, full := range conf.NameList(name) {
		a, err := resolve(ctx, conf, full)
		if err == nil {
			return a, nil
		}
		// Any other error is more informative than that a name does not exist.
		if first == nil || errors.Is(first, errNoName) && !errors.Is(err, errNoName) {
			first = fmt.Errorf("SRV records of %s: %w", strings.TrimSuffix(full, "."), err)
		}
	}
	return Answer{}, first
}

// resolve queries the records of a full name, and of its aliases.
func resolve(ctx context.Context, conf *dns.ClientConfig, name string) (Answer, error) {
	ttl := time.Duration(1<<63 - 1)
	for range maxAliases + 1 {
		reply, err := ask(ctx, conf, name)
		if err != nil {
			return Answer{}, err
		}
		a, alias, err := read(reply, name)
		if err != nil {
			return Answer{}, err
		}
		if a.TTL = min(a.TTL, ttl); alias == "" {
			return a, nil
		}
		name, ttl = alias, a.TTL
	}
	return Answer{}, errAliases
}

// ask queries one server after the other until one knows whether the name exists.
func ask(ctx context.Context, conf *dns.ClientConfig, name string) (*dns.Msg, error) {
	var failed error
	for range conf.Attempts {
		failed = nil
		for _, server := range conf.Servers {
			addr := net.JoinHostPort(server, conf.Port)
			reply, err := exchange(ctx, addr, name, min(time.Duration(conf.Timeout)*time.Second, longestReply))
			if err == nil {
				return reply, nil
			}
			failed = both(failed, fmt.Errorf("DNS server %s: %w", addr, err))
			if ctx.Err() != nil {
				return nil, failed
			}
		}
	}
	return nil, failed
}

// both joins two errors in one line; a may be nil.
func both(a, b error) error {
	if a == nil {
		return b
	}
	return fmt.Errorf("%w; %w", a, b)
}

// exchange queries one server, by UDP, and again by TCP if the reply is truncated.
func exchange(ctx context.Context, addr, name string, timeout time.Duration) (*dns.Msg, error) {
	question := new(dns.Msg).SetQuestion(name, dns.TypeSRV)
	question.SetEdns0(udpSize, false)
	client := dns.Client{Timeout: timeout, UDPSize: udpSize}
	reply, _, err := client.ExchangeContext(ctx, question, addr)
	if reply != nil && reply.Truncated {
		client.Net = "tcp"
		reply, _, err = client.ExchangeContext(ctx, question, addr)
	}
	switch {
	case err != nil:
		return nil, err
	case !reply.Response || len(reply.Question) != 1 || !strings.EqualFold(reply.Question[0].Name, name) ||
		reply.Question[0].Qtype != dns.TypeSRV:
		return nil, errors.New("it replies to another question")
	case reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError:
		return nil, fmt.Errorf("it replies %s", rcode(reply.Rcode))
	case reply.Truncated:
		return nil, errors.New("its reply is truncated")
	}
	return reply, nil
}

// rcode returns the name of a response code.
func rcode(code int) string {
	return cmp.Or(dns.RcodeToString[code], fmt.Sprintf("code %d", code))
}
