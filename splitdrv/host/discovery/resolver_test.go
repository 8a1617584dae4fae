package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/splitnic/splitnic/internal/testenv"
)

// server is a DNS server.
type server struct {
	mu    sync.Mutex
	zone  map[string][]string // records in the format of a zone file, by the name of the question
	code  int
	form  func(m *dns.Msg, tcp bool) // changes a reply; may be nil
	asked []string
}

func (s *server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(q.Question[0].Name)
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	network := "udp"
	if tcp {
		network = "tcp"
	}
	s.asked = append(s.asked, network+" "+name)
	m := new(dns.Msg).SetReply(q)
	lines, there := s.zone[name]
	if m.Rcode = s.code; !there && s.code == 0 {
		m.Rcode = dns.RcodeNameError
	}
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	m.Compress = true
	if !tcp {
		m.Truncate(udpSize)
	}
	if s.form != nil {
		s.form(m, tcp)
	}
	_ = w.WriteMsg(m)
}

// questions returns the questions so far, with their transport.
func (s *server) questions() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, ", ")
}

// resolver starts servers, all on one port, and returns a Resolver that uses them.
func resolver(t *testing.T, options string, servers ...*server) *Resolver {
	t.Helper()
	r := &Resolver{Path: filepath.Join(t.TempDir(), "resolv.conf")}
	text := options + "\n"
	at := netip.MustParseAddr(testenv.Loopback())
	for _, s := range servers {
		host := at.String()
		at = at.Next()
		text += "nameserver " + host + "\n"
		udp, err := net.ListenPacket("udp", net.JoinHostPort(host, orZero(r.port)))
		if err != nil {
			t.Fatal(err)
		}
		_, r.port, _ = net.SplitHostPort(udp.LocalAddr().String())
		tcp, err := net.Listen("tcp", udp.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []*dns.Server{{PacketConn: udp, Handler: s}, {Listener: tcp, Handler: s}} {
			ready := make(chan struct{})
			d.NotifyStartedFunc = func() { close(ready) }
			over := make(chan error, 1)
			go func() { over <- d.ActivateAndServe() }()
			<-ready
			t.Cleanup(func() {
				if err := errors.Join(d.Shutdown(), <-over); err != nil {
					t.Error(err)
				}
			})
		}
	}
	write(t, r.Path, text)
	return r
}

func orZero(port string) string {
	if port == "" {
		return "0"
	}
	return port
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func targets(a *Answer) (list []string) {
	for _, r := range a.Records {
		list = append(list, r.Target)
	}
	return list
}

// many returns the records of n I/O units.
func many(n int) (lines []string) {
	for i := range n {
		lines = append(lines, srv(60, fmt.Sprintf("1 1 7580 unit%d.fabric.example.", i)))
	}
	return lines
}

// TestLookup tests Lookup with DNS servers on the loopback interface.
func TestLookup(t *testing.T) {
	const name = "_splitnic._tcp.fabric.example"
	good := map[string][]string{testName: {srv(60, "1 2 7580 u1.example.")}}
	another := func(m *dns.Msg, _ bool) { m.Question[0].Name = "other.example." }
	for _, c := range []struct {
		name    string
		options string
		servers []*server
		asks    string
		want    int    // number of I/O units
		err     string // part of the error's text
	}{
		{"one", "", []*server{{zone: good}}, "udp " + testName, 1, ""},
		{"what does not fit into a datagram", "", []*server{{zone: map[string][]string{testName: many(100)}}},
			"udp " + testName + ", tcp " + testName, 100, ""},
		{"absurdly many", "", []*server{{zone: map[string][]string{testName: many(1000)}}},
			"udp " + testName + ", tcp " + testName, 1000, ""},
		{"truncated by TCP, too", "options attempts:1",
			[]*server{{zone: good, form: func(m *dns.Msg, _ bool) { m.Truncated = true }}},
			"", 0, "its reply is truncated"},
		{"the first server fails", "", []*server{{code: dns.RcodeServerFailure}, {zone: good}}, "udp " + testName, 1, ""},
		{"the first server refuses", "", []*server{{code: dns.RcodeRefused}, {zone: good}}, "udp " + testName, 1, ""},
		{"the first server replies to another question", "", []*server{{zone: good, form: another}, {zone: good}},
			"udp " + testName, 1, ""},
		{"the first server knows that there is no such name", "", []*server{{}, {zone: good}}, "", 0, errNoName.Error()},
		{"all fail", "", []*server{{code: dns.RcodeServerFailure}, {code: dns.RcodeRefused}},
			"udp " + testName + ", udp " + testName, 0, "it replies SERVFAIL"},
		{"once only", "options attempts:1", []*server{{code: dns.RcodeServerFailure}}, "udp " + testName, 0,
			"it replies SERVFAIL"},
		{"another question", "options attempts:1", []*server{{zone: good, form: another}}, "", 0,
			"it replies to another question"},
		{"none names a host", "", []*server{{zone: map[string][]string{testName: {srv(1, "0 0 0 u1.example.")}}}}, "", 0,
			"none of its 1 SRV records names a host and port"},
		{"a code without a name", "options attempts:1", []*server{{code: 13}}, "", 0, "it replies code 13"},
		{"no records", "", []*server{{zone: map[string][]string{testName: nil}}}, "", 0, errNoRecords.Error()},
		{"no such service", "", []*server{{zone: map[string][]string{testName: {srv(1, "0 0 0 .")}}}}, "", 0,
			errNoService.Error()},
		{"an alias that is not resolved", "", []*server{{zone: map[string][]string{
			testName: {testName + " 5 IN CNAME x.example."}, "x.example.": {"x.example. 60 IN SRV 1 2 7580 u1.example."},
		}}}, "udp " + testName + ", udp x.example.", 1, ""},
		{"aliases in a circle", "", []*server{{zone: map[string][]string{
			testName: {testName + " 5 IN CNAME x.example."}, "x.example.": {"x.example. 5 IN CNAME " + testName},
		}}}, "", 0, errAliases.Error()},
		{"an alias of nothing", "", []*server{{zone: map[string][]string{testName: {testName + " 5 IN CNAME x.example."}}}},
			"", 0, errNoName.Error()},
		{"a search list that is not needed", "search a.example b.example", []*server{{zone: good}}, "udp " + testName, 1, ""},
		{"a search list that comes first", "search a.example b.example\noptions ndots:5",
			[]*server{{zone: map[string][]string{
				testName + "b.example.": {testName + "b.example. 60 IN SRV 1 2 7580 u1.example."},
			}}}, "udp " + testName + "a.example., udp " + testName + "b.example.", 1, ""},
		{"a search list in vain", "search a.example\noptions ndots:5", []*server{{zone: good}},
			"udp " + testName + "a.example., udp " + testName, 1, ""},
		{"the failure that says most", "search a.example\noptions ndots:5",
			[]*server{{zone: map[string][]string{testName: {srv(1, "0 0 0 .")}}}}, "", 0, errNoService.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := resolver(t, c.options, c.servers...).Lookup(t.Context(), name)
			if len(a.Records) != c.want || (err == nil) != (c.err == "") {
				t.Fatalf("%d I/O units, %v", len(a.Records), err)
			}
			if err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %s", err, c.err)
			}
			if last := c.servers[len(c.servers)-1]; c.asks != "" && last.questions() != c.asks {
				t.Errorf("asked %s, want %s", last.questions(), c.asks)
			}
			if err != nil {
				testenv.Explained(t, err.Error())
			}
		})
	}
}

// TestLookupShortestTTL has an alias with a shorter time to live than its records, and expects the
// shorter one.
func TestLookupShortestTTL(t *testing.T) {
	s := &server{zone: map[string][]string{
		testName: {testName + " 5 IN CNAME x.example."}, "x.example.": {"x.example. 60 IN SRV 1 2 7580 u1.example."},
	}}
	a, err := resolver(t, "", s).Lookup(t.Context(), testName)
	if err != nil || a.TTL != 5*time.Second || len(targets(&a)) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestLookupReadsTheFileAgain changes the file with the servers, like a machine that moves to
// another network. It expects Lookup to read the file again.
func TestLookupReadsTheFileAgain(t *testing.T) {
	s := &server{zone: map[string][]string{testName: {srv(60, "1 2 7580 u1.example.")}}}
	r := resolver(t, "", s)
	text, err := os.ReadFile(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Lookup(t.Context(), testName); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	} else {
		testenv.Explained(t, err.Error())
	}
	write(t, r.Path, string(text))
	if _, err := r.Lookup(t.Context(), testName); err != nil {
		t.Error(err)
	}
}

// TestLookupOfNobody asks a server that does not reply, and one whose replies are not DNS. It
// expects errors.
func TestLookupOfNobody(t *testing.T) {
	host := testenv.Loopback()
	udp, err := net.ListenPacket("udp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	r := &Resolver{Path: filepath.Join(t.TempDir(), "resolv.conf")}
	_, r.port, _ = net.SplitHostPort(udp.LocalAddr().String())
	write(t, r.Path, "nameserver "+host+"\noptions attempts:1 timeout:1")
	if _, err := r.Lookup(t.Context(), testName); err == nil {
		t.Error("there is an answer of nobody")
	} else {
		testenv.Explained(t, err.Error())
	}
	go func() {
		b := make([]byte, 1500)
		for {
			if _, from, err := udp.ReadFrom(b); err != nil {
				return
			} else if _, err := udp.WriteTo([]byte("go away, this is no server of names"), from); err != nil {
				return
			}
		}
	}()
	if _, err := r.Lookup(t.Context(), testName); err == nil {
		t.Error("there is an answer that is no DNS")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Lookup(ctx, testName); !errors.Is(err, context.Canceled) && err == nil {
		t.Error(err)
	}
}
