package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testca"
)

// TestProblems loads certificates that work and that cannot work. A real peer has to agree.
func TestProblems(t *testing.T) {
	hour := func(n time.Duration) time.Time { return time.Now().Add(n * time.Hour) }
	a := testca.NewFor(t, hour(-72), hour(72))
	between := a.Intermediate(t, hour(-72), hour(72))
	lapsed := a.Intermediate(t, hour(-72), hour(-1))
	other := testca.NewFor(t, hour(-72), hour(72))
	old := testca.NewFor(t, hour(-72), hour(-1))
	key := newKey(t)
	const client, server = x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	good := a.IssueTo(t, key, "alpha", client)
	below := between.IssueTo(t, key, "alpha", client)
	both := a.IssueFile(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "alpha"}, NotBefore: hour(-1), NotAfter: hour(1),
		ExtKeyUsage: []x509.ExtKeyUsage{client, server},
	}, key.Public())
	expired := a.IssueWithin(t, key, "alpha", client, hour(-9), hour(-2))
	early := a.IssueWithin(t, key, "alpha", client, hour(2), hour(9))
	belowLapsed := testca.Join(t, lapsed.IssueTo(t, key, "alpha", client), lapsed.File)
	for name, tc := range map[string]struct {
		file, ca string
		unit     bool
		want     string // "": works
	}{
		"host":                     {good, a.File, false, ""},
		"I/O unit":                 {a.IssueTo(t, key, "gw1", server), a.File, true, ""},
		"with an intermediate":     {testca.Join(t, below, between.File), a.File, false, ""},
		"self-signed key":          {"", a.File, false, ""},
		"expired":                  {expired, a.File, false, "it needs a new one"},
		"not yet valid":            {early, a.File, false, "set this machine's clock"},
		"host's at an I/O unit":    {good, a.File, true, "extendedKeyUsage=serverAuth"},
		"for both roles":           {both, a.File, false, "extendedKeyUsage=clientAuth"},
		"without its intermediate": {below, a.File, false, "intermediate authorities"},
		"with a wrong one":         {testca.Join(t, below, other.File), a.File, false, "intermediate authorities"},
		"expired intermediate":     {belowLapsed, a.File, false, "of its authority is valid"},
		"expired authority":        {old.IssueTo(t, key, "alpha", client), old.File, false, "is valid from"},
	} {
		t.Run(name, func(t *testing.T) {
			var trust Trust
			if err := trust.AddCA(tc.ca); err != nil {
				t.Fatal(err)
			}
			s, err := NewCredentials(key, tc.file, &trust)
			if err != nil {
				t.Fatal(err)
			}
			usage := client
			if tc.unit {
				usage = server
			}
			problems := s.Problems(usage, time.Now())
			if tc.want == "" && len(problems) > 0 || tc.want != "" && len(problems) == 0 {
				t.Errorf("problems %v, want %q", problems, tc.want)
			}
			for _, p := range problems {
				said := func(text string) bool { return strings.Contains(p.Error(), text) }
				if !said(tc.want) || !said(tc.file) && !said(tc.ca) {
					t.Errorf("problem %v, want %q", p, tc.want)
				}
			}
			if tc.unit || tc.file == "" {
				return
			}
			var peer Trust
			if err := peer.AddCA(tc.ca); err != nil {
				t.Fatal(err)
			}
			var chain []*x509.Certificate
			for _, der := range s.Certificate.Certificate {
				cert, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				chain = append(chain, cert)
			}
			if _, err := peer.Verify(chain, client, time.Now()); (err == nil) != (tc.want == "") {
				t.Errorf("a peer: %v", err)
			}
		})
	}
	// The peers may trust other authorities than this side.
	for name, file := range map[string]string{
		"another authority, complete": testca.Join(t, other.IssueTo(t, key, "alpha", client), other.File),
		"no authority":                below,
	} {
		var trust Trust
		if err := trust.Add(newKey(t).Fingerprint().String()); err != nil {
			t.Fatal(err)
		}
		if name != "no authority" {
			if err := trust.AddCA(a.File); err != nil {
				t.Fatal(err)
			}
		}
		s, err := NewCredentials(key, file, &trust)
		if err != nil {
			t.Fatal(err)
		}
		if problems := s.Problems(client, time.Now()); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
	insecure, err := NewCredentials(key, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if problems := insecure.Problems(client, time.Now()); len(problems) > 0 {
		t.Errorf("insecure: %v", problems)
	}
	// One of two authorities has expired: it may have been replaced.
	var trust Trust
	if err := trust.AddCA(testca.Join(t, old.File, a.File)); err != nil {
		t.Fatal(err)
	}
	s, err := NewCredentials(key, good, &trust)
	if err != nil {
		t.Fatal(err)
	}
	if problems := s.Problems(client, time.Now()); len(problems) > 0 {
		t.Errorf("one of two authorities: %v", problems)
	}
}

// TestFault has a peer reject certificates. What is wrong with one itself must be found, and nothing
// else.
func TestFault(t *testing.T) {
	a, key := testca.New(t), newKey(t)
	var trust Trust
	if err := trust.AddCA(a.File); err != nil {
		t.Fatal(err)
	}
	const client, server = x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	hour := func(n time.Duration) time.Time { return time.Now().Add(n * time.Hour) }
	for name, tc := range map[string]struct {
		file string
		peer x509.ExtKeyUsage
		want string // "": nothing
	}{
		"host's":                {a.IssueTo(t, key, "alpha", client), server, ""},
		"I/O unit's":            {a.IssueTo(t, key, "gw1", server), client, ""},
		"host's at an I/O unit": {a.IssueTo(t, key, "alpha", client), client, "extendedKeyUsage=serverAuth"},
		"expired":               {a.IssueWithin(t, key, "alpha", client, hour(-9), hour(-2)), server, "valid from"},
		"not yet valid":         {a.IssueWithin(t, key, "alpha", client, hour(2), hour(9)), server, "valid from"},
		"self-signed":           {"", server, ""},
	} {
		c, err := NewCredentials(key, tc.file, &trust)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Fault(tc.peer, time.Now())
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
