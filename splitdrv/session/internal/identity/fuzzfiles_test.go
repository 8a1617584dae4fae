package identity

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzFiles loads files of any content as a key, a list of fingerprints and certificates. Each
// must be accepted or refused, and the error must not quote what may be a secret.
func FuzzFiles(f *testing.F) {
	key := newKey(f)
	der, err := x509.MarshalPKCS8PrivateKey(key.private)
	if err != nil {
		f.Fatal(err)
	}
	// As SaveKey does, but without waiting for the disk.
	saved := pem.EncodeToMemory(&pem.Block{Type: keyPEMType, Bytes: der})
	f.Add(string(saved))
	f.Add(strings.Replace(string(saved), "PRIVATE", "PUBLIC", 1))
	f.Add("# hosts\nhost1=" + key.Fingerprint().String() + "\n\n" + newKey(f).Fingerprint().String() + " # another\n")
	f.Add("host1=sha256:")
	f.Add("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
	path := filepath.Join(f.TempDir(), "file") // each process has its own
	f.Fuzz(func(t *testing.T, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var trust Trust
		k, keyErr := LoadKey(path)
		_, certErr := loadCertificate(path, key)
		for _, err := range []error{keyErr, certErr, trust.AddFile(path), trust.AddCA(path)} {
			if err == nil {
				continue
			}
			for _, word := range strings.Fields(content) {
				// A seed in base64 has 43 characters and more. A fingerprint is no secret.
				if len(word) > 40 && !strings.HasPrefix(word, fingerprintPrefix) && strings.Contains(err.Error(), word) {
					t.Errorf("the error quotes the file: %v", err)
				}
			}
		}
		if keyErr == nil && len(k.private) == 0 {
			t.Errorf("%q is a key without content", content)
		}
	})
}

func FuzzFingerprint(f *testing.F) {
	f.Add(Fingerprint{1, 2, 3}.String())
	f.Add("sha256:")
	f.Add("sha256:000000000000000000000000000000000000000000\r0")
	f.Fuzz(func(t *testing.T, s string) {
		if fp, err := ParseFingerprint(s); err == nil && fp.String() != s {
			t.Errorf("%q is %v", s, fp)
		}
	})
}
