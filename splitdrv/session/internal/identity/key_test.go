package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
)

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	key := newKey(t)
	if err := SaveKey(path, key); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := SaveKey(path, newKey(t)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("saving over it: %v", err)
	}
	loaded, err := LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if !loaded.private.Equal(key.private) {
		t.Error("another key was loaded")
	}
}

// TestKeyFileIsWhole reads a key file as soon as it exists. It must be complete: a process that
// is killed must not leave an incomplete file, which the next one could neither load nor replace.
func TestKeyFileIsWhole(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		path := filepath.Join(dir, fmt.Sprint("key", i))
		seen := make(chan error)
		go func() {
			for {
				if _, err := LoadKey(path); !errors.Is(err, fs.ErrNotExist) {
					seen <- err
					return
				}
			}
		}()
		if err := SaveKey(path, newKey(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-seen; err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 50 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestLoadKeyDoesNotWait loads a key from a named pipe without a writer. LoadKey must fail at
// once.
func TestLoadKeyDoesNotWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := LoadKey(path); done <- err }()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Error("a key is waited for")
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // ends the wait
			f.Close()
		}
	}
}

func TestLoadKeyRefuses(t *testing.T) {
	dir := t.TempDir()
	readable := filepath.Join(dir, "readable")
	if err := SaveKey(readable, newKey(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(readable, 0o640); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"missing":         filepath.Join(dir, "missing"),
		"readable":        readable,
		"directory":       dir,
		"not PEM":         testca.File(t, "hello"),
		"other PEM":       testca.PEM(t, "CERTIFICATE", []byte{1, 2, 3}),
		"damaged":         testca.PEM(t, keyPEMType, []byte{1, 2, 3}),
		"other algorithm": testca.File(t, p256Key),
	} {
		if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), path) ||
			name != "directory" && name != "other PEM" && !strings.Contains(err.Error(), "splitnic keygen --out ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadKey(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := SaveKey(filepath.Join(dir, "no", "key"), newKey(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}

// p256Key was generated for this test with openssl genpkey -algorithm EC.
const p256Key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgLEXpV1QUURGGdO8V
SxfMa39fz7B7yuTdNYihOCIirwyhRANCAARiH3c7e2yidEZCuzIboLFpDU3loR8s
0CfyPq0QRivHVAVBPfZ38bka0XeBCS+UWyfd2CZ6tO4sET8UgvyDANnr
-----END PRIVATE KEY-----
`

// TestLoadForeignKey loads files as people have them. An Ed25519 key is accepted however the file
// begins, and anything else is named.
func TestLoadForeignKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	key := newKey(t)
	if err := SaveKey(path, key); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("secret")}))
	}
	mark, crlf := "\xef\xbb\xbf", strings.ReplaceAll(string(text), "\n", "\r\n")
	for name, good := range map[string]string{
		"mark": mark + string(text), "Windows": mark + crlf, "remarks": "# a key\n" + string(text),
		"behind its certificate": block("CERTIFICATE") + string(text),
	} {
		if loaded, err := LoadKey(testca.File(t, good)); err != nil || !loaded.private.Equal(key.private) {
			t.Errorf("%s: %v", name, err)
		}
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode(text)
	for text, want := range map[string]string{
		block("EC PARAMETERS") + block("EC PRIVATE KEY"): "a key of kind EC, and only Ed25519",
		block("RSA PRIVATE KEY"):                         "a key of kind RSA",
		block("DSA PRIVATE KEY"):                         "a key of kind DSA",
		block("OPENSSH PRIVATE KEY"):                     "a key of OpenSSH",
		block("ENCRYPTED PRIVATE KEY"):                   "encrypted with a password",
		block("CERTIFICATE"):                             "a certificate, and no private key",
		block("CERTIFICATE REQUEST"):                     "a certificate request",
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})): "a public key",
		"ssh-ed25519 AAAA alpha":            "a public key of OpenSSH",
		"PuTTY-User-Key-File-3: ssh-rsa":    "a key of PuTTY",
		key.Fingerprint().String() + "\n":   "a fingerprint",
		string(der.Bytes):                   "binary data",
		mark + block("EC PRIVATE KEY"):      "a key of kind EC",
		p256Key:                             "not an Ed25519 key; it is an EC key (P-256)",
		block("X\x1b[31m PRIVATE KEY") + "": "a key of kind X?[31m",
		string(pem.EncodeToMemory(&pem.Block{Type: keyPEMType, Bytes: rsaDER})): "an RSA key of 2048 bits",
		"\xff\xfe-\x00": "UTF-16",
		"hello":         "no PEM block",
	} {
		path := testca.File(t, text)
		_, err := LoadKey(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", want, err, want)
		}
	}
}

// TestMarkedFiles reads lists and certificates with a byte-order mark.
func TestMarkedFiles(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	key := newKey(t)
	var trust Trust
	file := testca.File(t, mark+"alpha="+key.Fingerprint().String()+"\r\n")
	if err := trust.AddFile(file); err != nil || !trust.Knows("alpha") {
		t.Errorf("trust file: %v", err)
	}
	if err := trust.AddFile(testca.File(t, "\xff\xfea\x00")); err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Errorf("trust file in UTF-16: %v", err)
	}
	if err := trust.AddRevoked(testca.File(t, mark+key.Fingerprint().String())); err != nil || trust.Knows("alpha") {
		t.Errorf("revoked keys: %v", err)
	}
	a := testca.New(t)
	marked := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return testca.File(t, mark+string(text))
	}
	if err := trust.AddCA(marked(a.File)); err != nil {
		t.Errorf("authorities: %v", err)
	}
	if _, err := NewCredentials(key, marked(a.IssueTo(t, key, "alpha", x509.ExtKeyUsageClientAuth)), &trust); err != nil {
		t.Errorf("certificate: %v", err)
	}
}

func TestKeyPrintsAsFingerprint(t *testing.T) {
	key := newKey(t)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, key); !strings.Contains(s, key.Fingerprint().String()) || len(s) > 80 {
			t.Errorf("%s prints %s", format, s)
		}
	}
}

// TestFingerprintByOpenSSL follows the recipe in docs/protocol.md.
func TestFingerprintByOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	path := filepath.Join(t.TempDir(), "key")
	key := newKey(t)
	if err := SaveKey(path, key); err != nil {
		t.Fatal(err)
	}
	recipe := `printf sha256:; openssl pkey -in "$1" -pubout -outform DER | openssl dgst -sha256 -binary | openssl base64 -A | tr '+/' '-_' | tr -d '='`
	out, err := exec.Command("sh", "-c", recipe, "sh", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != key.Fingerprint().String() {
		t.Errorf("openssl computes %s, this package %v", out, key.Fingerprint())
	}
	if f, err := ParseFingerprint(string(out)); err != nil || f != key.Fingerprint() {
		t.Errorf("parsed as %v, %v", f, err)
	}
}

func TestKeyAccess(t *testing.T) {
	for _, tt := range []struct {
		mode        fs.FileMode
		owner, user uint32
		ok          bool
	}{
		{0o600, 0, 0, true},
		{0o400, 0, 0, true},
		{0o640, 0, 0, false},
		{0o604, 0, 0, false},
		{0o620, 0, 0, false},
		{0o600, 1000, 1000, true},
		{0o440, 1000, 1000, false},
		{0o600, 1000, 0, false}, // root would use a file that another user can change
		{0o600, 1001, 1000, false},
		{0o440, 0, 1000, true}, // as systemd creates credentials
		{0o640, 0, 1000, true},
		{0o660, 0, 1000, false},
		{0o644, 0, 1000, false},
	} {
		if err := checkAccess("/etc/key.pem", tt.mode, tt.owner, tt.user); (err == nil) != tt.ok ||
			err != nil && !strings.Contains(err.Error(), "splitnic keygen --out NEW") {
			t.Errorf("mode %#o of user %d, for user %d: %v", tt.mode, tt.owner, tt.user, err)
		} else if err != nil {
			testenv.Ended(t, 5, "load key /etc/key.pem: "+err.Error())
		}
	}
}

func TestKeyFromSeed(t *testing.T) {
	a, b := [SeedSize]byte{1}, [SeedSize]byte{2}
	first := KeyFromSeed(a)
	if again := KeyFromSeed(a); again.Fingerprint() != first.Fingerprint() {
		t.Error("one seed makes two keys")
	}
	if KeyFromSeed(a).Fingerprint() == KeyFromSeed(b).Fingerprint() {
		t.Error("two seeds make one key")
	}
}
