package session

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"
)

// Trust says which peers to talk to: keys named by their fingerprints, and
// whoever has a certificate from certain authorities. The zero value trusts
// nobody. Fill it before it is used; then it may be shared.
type Trust struct {
	pins map[Fingerprint]string
	ca   *x509.CertPool
}

// Add trusts a key: "sha256:…", or "name=sha256:…" to give its owner a name.
func (t *Trust) Add(entry string) error {
	name, encoded, named := strings.Cut(entry, "=")
	if !named {
		name, encoded = "", entry
	}
	if named && !ValidName(name) {
		return fmt.Errorf("trust entry: the name before %q must be 1 to %d letters, digits, '.', '_' or '-'", "=", maxNameLength)
	}
	f, err := ParseFingerprint(encoded)
	if err != nil {
		return fmt.Errorf("trust entry: %w", err)
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

// AddFile trusts the keys listed in a file, one Add entry per line. Empty
// lines and what follows a '#' are ignored.
func (t *Trust) AddFile(path string) error {
	b, err := readFile(path)
	if err != nil {
		return fmt.Errorf("trust file: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		entry, _, _ := strings.Cut(lines.Text(), "#")
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		// The line is not quoted: it could be from a key file given by mistake.
		if err := t.Add(entry); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("trust file %s: %w", path, err)
	}
	return nil
}

// AddCA trusts peers with a certificate issued by an authority in a PEM file:
// for client authentication if they are hosts, server authentication if they
// are I/O units.
func (t *Trust) AddCA(path string) error {
	b, err := readFile(path)
	if err != nil {
		return fmt.Errorf("authorities: %w", err)
	}
	if t.ca == nil {
		t.ca = x509.NewCertPool()
	}
	if !t.ca.AppendCertsFromPEM(b) {
		return fmt.Errorf("authorities: no certificate in PEM in %s", path)
	}
	return nil
}

func (t *Trust) empty() bool { return len(t.pins) == 0 && t.ca == nil }

// verify finds out who presented chain, whose possession of the first
// certificate's key TLS has already established. The reason of a refusal is
// for people only.
func (t *Trust) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage) (id Identity, reason error) {
	leaf := chain[0]
	id.Fingerprint = certificateFingerprint(leaf)
	if name, ok := t.pins[id.Fingerprint]; ok {
		id.Name = name
		return id, nil
	}
	if t.ca == nil {
		return id, errNotPinned
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:         t.ca,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return id, err
	}
	id.Name = certificateName(leaf)
	return id, nil
}

// certificateName is the first name in the certificate that can be one here.
func certificateName(cert *x509.Certificate) string {
	for _, name := range append([]string{cert.Subject.CommonName}, cert.DNSNames...) {
		if ValidName(name) {
			return name
		}
	}
	return ""
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
