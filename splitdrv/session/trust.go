package session

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
)

// Trust says which peers to talk to: keys named by their fingerprints, and
// whoever has a certificate from certain authorities, but for revoked keys. The
// zero value trusts nobody. Fill it before it is used; then it may be shared.
type Trust struct {
	pins    map[Fingerprint]string
	ca      *x509.CertPool
	roots   []*x509.Certificate // of ca
	revoked map[Fingerprint]struct{}
	names   []string // of I/O units, when they have certificates; nil: any
}

// Add trusts a key: "sha256:…", or "name=sha256:…" to give its owner a name.
// Several keys may have one name: those of an owner who is about to change keys.
func (t *Trust) Add(entry string) error {
	name, f, err := parseEntry(entry)
	if err != nil {
		return err
	}
	if old, ok := t.pins[f]; ok && old != name {
		return fmt.Errorf("trust entry: %v is named %q and %q", f, old, name)
	}
	if t.pins == nil {
		t.pins = make(map[Fingerprint]string)
	}
	t.pins[f] = name
	return nil
}

func parseEntry(entry string) (name string, f Fingerprint, err error) {
	name, encoded, named := strings.Cut(entry, "=")
	if !named {
		name, encoded = "", entry
	}
	if named && !ValidName(name) {
		return "", f, fmt.Errorf("trust entry: the name before %q must be 1 to %d letters, digits, '.', '_' or '-'", "=",
			maxNameLength)
	}
	if f, err = ParseFingerprint(encoded); err != nil {
		return "", f, fmt.Errorf("trust entry: %w", err)
	}
	return name, f, nil
}

// AddFile trusts the keys listed in a file, one Add entry per line. Empty
// lines and what follows a '#' are ignored.
func (t *Trust) AddFile(path string) error { return eachEntry("trust file", path, t.Add) }

// AddRevoked takes a file with lines as AddFile's. Keys in it are trusted no
// longer, whoever lists them and whichever authority issued a certificate for
// them; nor is a certificate that a key in it has issued.
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

// eachEntry calls add for each line of a file that has something on it.
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
		// The line is not quoted: it could be from a key file given by mistake.
		if err := add(entry); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, n, err))
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s %s: %w", what, path, err))
	}
	return errors.Join(errs...)
}

// AddCA trusts peers with a certificate issued by an authority in a PEM file:
// for client authentication alone if they are hosts, for server authentication
// alone if they are I/O units.
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
		}
	}
	if len(t.roots) == found {
		return fmt.Errorf("authorities: no certificate in PEM in %s", path)
	}
	return nil
}

// Expect has I/O units be trusted by their certificates only under one of these
// names. It is for a host's Trust. Keys that are listed are not concerned.
func (t *Trust) Expect(names ...string) error {
	for _, name := range names {
		if !ValidName(name) {
			return fmt.Errorf("name of an I/O unit: %q is not possible: must be 1 to %d letters, digits, '.', '_' or '-'", name,
				maxNameLength)
		}
	}
	t.names = append(t.names, names...)
	return nil
}

// Knows reports whether a peer can be trusted under that name or fingerprint: a key that is
// listed and not revoked has it, or there are authorities, whose certificates name anybody.
func (t *Trust) Knows(who string) bool {
	if t.ca != nil {
		return true
	}
	for f, name := range t.pins {
		_, revoked := t.revoked[f]
		if !revoked && (name == who || f.String() == who) {
			return true
		}
	}
	return false
}

func (t *Trust) empty() bool { return len(t.pins) == 0 && t.ca == nil }

// maxChain is how many certificates a peer may present: its own, and those of
// authorities between that and one that is trusted.
const maxChain = 5

var errLongChain = fmt.Errorf("more than %d certificates", maxChain)

// issued are those of the certificates that an authority which is trusted has
// issued, by itself or through others of them, and whether the first one is among
// them. The search for a way from the first one to the authorities checks up to a
// hundred signatures, of whatever keys the peer has chosen, which takes a hundred
// times as long as a handshake. It is spared here whoever has none: each signature
// is checked by a key that an authority has vouched for, and by no other. That one
// of the certificates is in order says nothing: anybody has the authority's own, and
// that of this side.
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

// verify finds out who presented chain and until when that is to be believed, if
// the first certificate's key is the peer's, which TLS looks at after this. The
// reason of a refusal is for people only.
func (t *Trust) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (v *verdict, reason error) {
	leaf := chain[0]
	v = &verdict{id: Identity{Fingerprint: certificateFingerprint(leaf)}, chain: chain}
	if _, revoked := t.revoked[v.id.Fingerprint]; revoked {
		return v, ErrRevoked
	}
	if name, ok := t.pins[v.id.Fingerprint]; ok {
		v.id.Name = name
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
	v.begins = leaf.NotBefore
	for _, certs := range found {
		if !t.anyRevoked(certs) {
			v.expires = later(v.expires, expiry(certs))
		}
	}
	if v.expires.IsZero() {
		return v, fmt.Errorf("the key of an authority that issued its certificate: %w", ErrRevoked)
	}
	if err := checkPurpose(leaf, usage); err != nil {
		return v, err
	}
	v.id.Name, err = t.checkName(leaf, usage)
	return v, err
}

// checkName finds the expected name in an I/O unit's certificate, or returns the
// certificate's own name if any will do.
func (t *Trust) checkName(cert *x509.Certificate, usage x509.ExtKeyUsage) (string, error) {
	if usage != x509.ExtKeyUsageServerAuth || len(t.names) == 0 {
		return certificateName(cert), nil
	}
	has := certificateNames(cert)
	for _, name := range has {
		// Names of machines are the same in capitals (RFC 4343).
		if slices.ContainsFunc(t.names, func(want string) bool { return strings.EqualFold(want, name) }) {
			return name, nil
		}
	}
	return "", nameError{has, t.names}
}

func (t *Trust) anyRevoked(certs []*x509.Certificate) bool {
	for _, cert := range certs {
		if _, revoked := t.revoked[certificateFingerprint(cert)]; revoked {
			return true
		}
	}
	return false
}

// expiry is when the first of the certificates of a chain comes to its end.
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
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxPEMFile)
	}
	return b, nil
}

// verdict is what was found out about a peer. It does not change.
type verdict struct {
	id      Identity
	chain   []*x509.Certificate // that the peer showed
	begins  time.Time           // since when it holds
	expires time.Time           // from when on it does not hold; zero: for ever
}
