package identity

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/splitnic/splitnic/internal/bom"
	"github.com/splitnic/splitnic/internal/units"
)

// Trust determines which peers are trusted: those with listed keys, and those with a
// certificate of a listed authority, except revoked keys. The zero value trusts no peer. It
// must be filled before it is used; then it may be shared.
type Trust struct {
	pins    map[Fingerprint]string
	ca      *x509.CertPool
	roots   []*x509.Certificate // certificates in ca
	files   []string            // file of each of roots
	revoked map[Fingerprint]struct{}
	names   []string // permitted names in certificates of I/O units; nil: any
}

// Add trusts a key: "sha256:…", or "name=sha256:…" to name its owner, in either order, and with
// blanks around "=" or instead of it. Several keys may have the same name, for an owner who
// changes keys.
func (t *Trust) Add(entry string) error {
	name, f, err := parseEntry(entry)
	if err != nil {
		return err
	}
	if old, ok := t.pins[f]; ok && old != name {
		return fmt.Errorf("trust entry %v: it is named %q and %q", f, old, name)
	}
	if t.pins == nil {
		t.pins = make(map[Fingerprint]string)
	}
	t.pins[f] = name
	return nil
}

// AddFile trusts the keys in a file, one entry of Add per line. Empty lines, and text after a
// '#', are ignored.
func (t *Trust) AddFile(path string) error { return eachEntry("trust file", path, t.Add) }

// AddRevoked revokes the keys in a file in the format of AddFile. Revoked keys are not
// trusted even if they are listed or an authority has issued a certificate for them.
// Certificates issued by a revoked key are not trusted either.
func (t *Trust) AddRevoked(path string) error {
	return eachEntry("revoked keys", path, func(entry string) error {
		_, f, err := parseEntry(entry)
		if err != nil {
			return err
		}
		if t.revoked == nil {
			t.revoked = make(map[Fingerprint]struct{})
		}
		t.revoked[f] = struct{}{}
		return nil
	})
}

// eachEntry calls add for each line of a file with an entry.
func eachEntry(what, path string, add func(entry string) error) error {
	b, err := readFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var errs []error
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		entry, _, _ := strings.Cut(lines.Text(), "#")
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if err := add(entry); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, n, err))
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s %s: %w", what, path, err))
	}
	return errors.Join(errs...)
}

// AddCA trusts peers with a certificate issued by an authority in a PEM file. Certificates of
// hosts must be for client authentication only, those of I/O units for server authentication
// only.
func (t *Trust) AddCA(path string) error {
	b, err := readFile(path)
	if err != nil {
		return fmt.Errorf("authorities: %w", err)
	}
	if t.ca == nil {
		t.ca = x509.NewCertPool()
	}
	found := len(t.roots)
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if root, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			t.ca.AddCert(root)
			t.roots = append(t.roots, root)
			t.files = append(t.files, path)
		}
	}
	if len(t.roots) == found {
		return fmt.Errorf("authorities: no certificate in PEM in %s", path)
	}
	return nil
}

// Expect restricts the trust in certificates of I/O units to those with one of the names. It
// is meant for hosts. It does not affect listed keys.
func (t *Trust) Expect(names ...string) error {
	for _, name := range names {
		if !ValidName(name) {
			return fmt.Errorf("name of an I/O unit: %q is not possible: must be 1 to %d letters, digits, '.', '_' or '-'", name,
				MaxNameLength)
		}
	}
	t.names = append(t.names, names...)
	return nil
}

// Knows reports whether a peer with a name or fingerprint can be trusted: a listed key that
// is not revoked has it, or there are authorities, whose certificates can have any name.
func (t *Trust) Knows(who string) bool {
	if t.ca != nil {
		return true
	}
	for f, name := range t.pins {
		if !t.Revoked(f) && (name == who || f.String() == who) {
			return true
		}
	}
	return false
}

// Empty reports whether no peer is trusted.
func (t *Trust) Empty() bool { return len(t.pins) == 0 && t.ca == nil }

// Sizes returns the numbers of keys that are listed, and that are revoked.
func (t *Trust) Sizes() (listed, revoked int) { return len(t.pins), len(t.revoked) }

// Authorities reports whether authorities are trusted.
func (t *Trust) Authorities() bool { return t.ca != nil }

// Revoked reports whether a key is revoked.
func (t *Trust) Revoked(f Fingerprint) bool {
	_, revoked := t.revoked[f]
	return revoked
}

// maxChain is the largest number of certificates of a peer: its own, and those of
// intermediate authorities.
const maxChain = 5

var errLongChain = fmt.Errorf("more than %d certificates", maxChain)

// issued returns the certificates in chain that a trusted authority has issued, directly or
// through others of them, and whether the first one is among them. x509.Certificate.Verify
// would check up to a hundred signatures, with any keys that the peer chooses, which takes a
// hundred times as long as a handshake. Here a signature is only checked with the key of a
// trusted authority, or of a certificate that was already found to be issued. A chain in
// which only other certificates are issued proves nothing: those of the authority and of
// this side are public.
func (t *Trust) issued(chain []*x509.Certificate) (some []*x509.Certificate, first bool) {
	is := make([]bool, len(chain))
	issuers := slices.Clone(t.roots)
	for at := 0; at < len(issuers); at++ {
		by := issuers[at]
		for i, cert := range chain {
			if !is[i] && (cert.Equal(by) || bytes.Equal(cert.RawIssuer, by.RawSubject) && cert.CheckSignatureFrom(by) == nil) {
				is[i] = true
				issuers = append(issuers, cert)
			}
		}
	}
	return issuers[len(t.roots):], is[0]
}

// Verify verifies the chain of a peer, and returns its identity and term. TLS checks
// afterwards that the peer has the key of the first certificate. reason is the reason for
// not trusting the peer.
func (t *Trust) Verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (v *Verdict, reason error) {
	leaf := chain[0]
	v = &Verdict{ID: Identity{Fingerprint: FingerprintOf(leaf)}, Chain: chain}
	if t.Revoked(v.ID.Fingerprint) {
		return v, ErrRevoked
	}
	if name, ok := t.pins[v.ID.Fingerprint]; ok {
		v.ID.Name = name
		return v, nil
	}
	if t.ca == nil {
		return v, errNotPinned
	}
	if len(chain) > maxChain {
		return v, errLongChain
	}
	issued, ok := t.issued(chain)
	if !ok {
		return v, x509.UnknownAuthorityError{Cert: leaf}
	}
	intermediates := x509.NewCertPool()
	for _, cert := range issued {
		intermediates.AddCert(cert)
	}
	found, err := leaf.Verify(x509.VerifyOptions{
		Roots:         t.ca,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage {
		err = errors.Join(checkPurpose(leaf, usage), err)
	}
	if err != nil {
		return v, err
	}
	v.Begins = leaf.NotBefore
	for _, certs := range found {
		if !t.anyRevoked(certs) {
			v.Expires = later(v.Expires, expiry(certs))
		}
	}
	if v.Expires.IsZero() {
		return v, fmt.Errorf("the key of an authority that issued its certificate: %w", ErrRevoked)
	}
	if err := checkPurpose(leaf, usage); err != nil {
		return v, err
	}
	v.ID.Name, err = t.checkName(certificateNames(leaf, found), usage)
	return v, err
}

// checkName returns the expected one of the names in an I/O unit's certificate, or the first
// one, or "", if any is permitted.
func (t *Trust) checkName(has []string, usage x509.ExtKeyUsage) (string, error) {
	if usage != x509.ExtKeyUsageServerAuth || len(t.names) == 0 {
		return append(has, "")[0], nil
	}
	for _, name := range has {
		// Host names do not depend on case (RFC 4343).
		if slices.ContainsFunc(t.names, func(want string) bool { return strings.EqualFold(want, name) }) {
			return name, nil
		}
	}
	return "", nameError{has, t.names}
}

func (t *Trust) anyRevoked(certs []*x509.Certificate) bool {
	return slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return t.Revoked(FingerprintOf(c)) })
}

// expiry returns when the first of the certificates expires.
func expiry(certs []*x509.Certificate) time.Time {
	first := certs[0].NotAfter
	for _, cert := range certs {
		if cert.NotAfter.Before(first) {
			first = cert.NotAfter
		}
	}
	return first
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPEMFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxPEMFile {
		return nil, fmt.Errorf("%s is larger than %s", path, units.Size(maxPEMFile))
	}
	if b, err = bom.Cut(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Verdict is the result of verifying a peer. It does not change.
type Verdict struct {
	ID      Identity
	Chain   []*x509.Certificate // certificates of the peer
	Begins  time.Time           // begin of its validity
	Expires time.Time           // end of its validity; zero: never
}
