package session

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// usages has the extended key usages of certificates, and for which role each is valid.
var usages = []struct {
	name       string
	usages     []x509.ExtKeyUsage
	host, unit bool // valid for this role
}{
	{"nothing", nil, false, false},
	{"client", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, true, false},
	{"server", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, false, true},
	{"both", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, false, false},
	{"any", []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, false, false},
	{"any and client", []x509.ExtKeyUsage{x509.ExtKeyUsageAny, x509.ExtKeyUsageClientAuth}, false, false},
	{"any and server", []x509.ExtKeyUsage{x509.ExtKeyUsageAny, x509.ExtKeyUsageServerAuth}, false, false},
	{"something else", []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}, false, false},
}

// memberFor returns a member with these extended key usages and DNS names.
func (a *authority) memberFor(t *testing.T, name string, usages []x509.ExtKeyUsage, dns ...string) *Security {
	t.Helper()
	key := newKey(t)
	return a.trusting(t, key, a.IssueFile(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: dns, ExtKeyUsage: usages,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, key.Public()))
}

// TestPurpose uses certificates of one authority with all usages on both sides. A side must be
// trusted only if its certificate is for its role.
func TestPurpose(t *testing.T) {
	a := newAuthority(t)
	host := a.member(t, "node17", x509.ExtKeyUsageClientAuth)
	ln, rejected := listen(t, ServerConfig{Security: a.member(t, "gw1", x509.ExtKeyUsageServerAuth)})
	for _, u := range usages {
		t.Run(u.name, func(t *testing.T) {
			member := a.memberFor(t, "member", u.usages)
			if (len(member.Problems(false)) == 0) != u.host || (len(member.Problems(true)) == 0) != u.unit {
				t.Errorf("problems: %v, %v", member.Problems(false), member.Problems(true))
			}
			var untrusted *UntrustedError
			if u.host {
				establish(t, ln, member)
			} else if err := knock(t, ln, member); !errors.As(err, &untrusted) || !untrusted.Ours {
				t.Errorf("as a host: %v", err)
			} else {
				testenv.Explained(t, err.Error())
				err = rejected.next(t)
				if !errors.As(err, &untrusted) || untrusted.Ours || Reason(err) != "untrusted" {
					t.Errorf("as a host, at the I/O unit: %v", err)
				}
				testenv.Explained(t, err.Error())
			}
			gateway, refused := listen(t, ServerConfig{Security: member})
			if u.unit {
				establish(t, gateway, host)
			} else if err := knock(t, gateway, host); !errors.As(err, &untrusted) || untrusted.Ours {
				t.Errorf("as an I/O unit: %v", err)
			} else {
				testenv.Explained(t, err.Error())
				testenv.Explained(t, refused.next(t).Error())
			}
		})
	}
}

// TestPurposeOfListedKeys uses listed keys. The usages of their certificates must not matter, nor
// those of the certificates that splitnic makes itself, which are for both roles.
func TestPurposeOfListedKeys(t *testing.T) {
	a := newAuthority(t)
	for _, u := range usages {
		member := a.memberFor(t, "member", u.usages)
		other := newKey(t)
		by := secured(t, other, member.Fingerprint().String())
		if err := member.made.Trust.Add(other.Fingerprint().String()); err != nil {
			t.Fatal(err)
		}
		ln, _ := listen(t, ServerConfig{Security: by})
		establish(t, ln, member)
		ln, _ = listen(t, ServerConfig{Security: member})
		establish(t, ln, by)
	}
}

// TestExpectedNames has a host that lists the names of the I/O units it expects.
func TestExpectedNames(t *testing.T) {
	a := newAuthority(t)
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	gw1 := a.memberFor(t, "gw1", server)
	for _, tt := range []struct {
		name   string
		unit   *Security
		expect []string
		want   string // the name by which the I/O unit is known; "": it is not trusted
	}{
		{"none", gw1, nil, "gw1"},
		{"its own", gw1, []string{"gw1"}, "gw1"},
		{"one of several", gw1, []string{"gw0", "gw1"}, "gw1"},
		{"another", gw1, []string{"gw2"}, ""},
		{"the beginning", gw1, []string{"gw"}, ""},
		{"more than it", gw1, []string{"gw1.cluster"}, ""},
		{"capitals", gw1, []string{"GW1"}, "gw1"},
		{"a DNS name", a.memberFor(t, "unit", server, "gw3.cluster", "gw1.cluster"), []string{"gw1.cluster"}, "gw1.cluster"},
		{"no name", a.memberFor(t, "", server), []string{"gw1"}, ""},
		{"a name for all", a.memberFor(t, "unit", server, "*.cluster"), []string{"gw1.cluster"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := a.member(t, "node17", x509.ExtKeyUsageClientAuth)
			if err := host.made.Trust.Expect(tt.expect...); err != nil {
				t.Fatal(err)
			}
			ln, rejected := listen(t, ServerConfig{Security: tt.unit})
			if tt.want != "" {
				if c, _ := establish(t, ln, host); c.Peer().Name != tt.want {
					t.Errorf("the I/O unit is %v", c.Peer())
				}
				return
			}
			err := knock(t, ln, host)
			if !strings.Contains(err.Error(), "--iounit-name expects") || Reason(err) != "untrusted" {
				t.Fatal(err)
			}
			testenv.Explained(t, err.Error())
			rejected.next(t)
			// A listed key is trusted under any name.
			if err := host.made.Trust.Add(tt.unit.Fingerprint().String()); err != nil {
				t.Fatal(err)
			}
			establish(t, ln, host)
		})
	}
	// An I/O unit's expected names do not apply to hosts.
	unit := a.member(t, "gw1", x509.ExtKeyUsageServerAuth)
	if err := unit.made.Trust.Expect("gw1"); err != nil {
		t.Fatal(err)
	}
	ln, _ := listen(t, ServerConfig{Security: unit})
	establish(t, ln, a.member(t, "node17", x509.ExtKeyUsageClientAuth))
	if err := new(Trust).Expect("gw 1"); err == nil {
		t.Error("a name with a space was taken")
	}
}
