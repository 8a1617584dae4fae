package discovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const testName = "_splitnic._tcp.fabric.example."

// reply returns a DNS reply with records in the format of a zone file.
func reply(t testing.TB, lines ...string) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetQuestion(testName, dns.TypeSRV)
	m.Response = true
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}

func srv(ttl int, rest string) string { return fmt.Sprintf("%s %d IN SRV %s", testName, ttl, rest) }

func TestRead(t *testing.T) {
	chain := []string{testName + " 60 IN CNAME a0.example."}
	for i := range maxAliases + 1 {
		chain = append(chain, fmt.Sprintf("a%d.example. 60 IN CNAME a%d.example.", i, i+1))
	}
	for _, c := range []struct {
		name    string
		lines   []string
		want    string // targets of the records
		ttl     time.Duration
		skipped int
		alias   string
		err     string
	}{
		{"two", []string{srv(60, "1 2 7580 U1.Fabric.Example."), srv(30, "1 2 7580 u2.fabric.example.")},
			"u1.fabric.example u2.fabric.example", 30 * time.Second, 0, "", ""},
		{"with others", []string{
			srv(60, "1 2 7580 u1.example."), "other.example. 1 IN SRV 1 2 7580 u2.example.", "u1.example. 2 IN A 10.0.0.1",
			testName + " 3 CH SRV 1 2 7580 u3.example.", testName + " 3 IN A 10.0.0.2",
		}, "u1.example", time.Minute, 0, "", ""},
		{"its name is written otherwise", []string{"_SPLITNIC._TCP.Fabric.Example. 9 IN SRV 1 2 7580 u1.example."},
			"u1.example", 9 * time.Second, 0, "", ""},
		{"an alias", []string{testName + " 5 IN CNAME x.example.", "x.example. 60 IN SRV 1 2 7580 u1.example."},
			"u1.example", 5 * time.Second, 0, "", ""},
		{"an alias, behind what it is for",
			[]string{"x.example. 60 IN SRV 1 2 7580 u1.example.", testName + " 5 IN CNAME x.example."},
			"u1.example", 5 * time.Second, 0, "", ""},
		{"an alias alone", []string{testName + " 5 IN CNAME x.example."}, "", 5 * time.Second, 0, "x.example.", ""},
		{"aliases in a circle",
			[]string{testName + " 5 IN CNAME x.example.", "x.example. 5 IN CNAME " + testName}, "", 0, 0, "",
			errAliases.Error()},
		{"too many aliases", chain, "", 0, 0, "", errAliases.Error()},
		{"some name no host", []string{
			srv(60, `1 2 7580 a\000b.example.`), srv(60, "1 2 0 u1.example."), srv(60, "1 2 7580 ."), srv(60, `1 2 7580 a\.b.example.`),
			srv(60, "1 2 7580 u1.example."),
		}, "u1.example", time.Minute, 4, "", ""},
		{"none names a host", []string{srv(60, `1 2 7580 a\032b.example.`), srv(60, "1 2 0 u1.example.")}, "", 0, 0, "", "none of its 2 SRV records"},
		{"no such service", []string{srv(60, "0 0 0 .")}, "", 0, 0, "", errNoService.Error()},
		{"nothing", nil, "", 0, 0, "", errNoRecords.Error()},
		{"something else", []string{testName + " 3 IN TXT unit"}, "", 0, 0, "", errNoRecords.Error()},
		{"for ever", []string{srv(1<<31-1, "1 2 7580 u1.example.")}, "u1.example", (1<<31 - 1) * time.Second, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, alias, err := read(reply(t, c.lines...), testName)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			var got []string
			for _, r := range a.Records {
				got = append(got, r.Target)
			}
			if err != nil || strings.Join(got, " ") != c.want || a.TTL != c.ttl || a.Skipped != c.skipped || alias != c.alias {
				t.Errorf("%+v, alias %q, %v", a, alias, err)
			}
		})
	}
	m := reply(t)
	m.Rcode = dns.RcodeNameError
	if _, _, err := read(m, testName); !errors.Is(err, errNoName) {
		t.Error(err)
	}
}

// FuzzRead reads arbitrary replies of a server. It expects only names and ports that can be
// dialled, and at most the maximum number of I/O units.
func FuzzRead(f *testing.F) {
	for _, lines := range [][]string{
		nil, {srv(60, "1 2 7580 u1.example."), srv(60, "1 0 7580 u2.example.")}, {srv(60, "0 0 0 .")},
		{testName + " 5 IN CNAME x.example.", "x.example. 60 IN SRV 1 2 7580 u1.example."},
		{srv(60, `1 2 7580 a\000b.example.`)},
	} {
		wire, err := reply(f, lines...).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m := new(dns.Msg)
		if m.Unpack(wire) != nil {
			return
		}
		a, alias, err := read(m, testName)
		if (err == nil && alias == "") != (err == nil && len(a.Records) > 0) {
			t.Fatalf("%+v, alias %q, %v", a, alias, err)
		}
		if a.TTL < 0 {
			t.Errorf("TTL %v", a.TTL)
		}
		for _, r := range a.Records {
			if !validName(r.Target) || r.Port == 0 || strings.ToLower(r.Target) != r.Target {
				t.Errorf("%+v", r)
			}
		}
		if units := Order("host", a.Records); len(units) > most || len(units) == 0 && len(a.Records) > 0 {
			t.Errorf("%d I/O units of %d records", len(units), len(a.Records))
		}
	})
}
