package scrape

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// Hashes of passwords, as htpasswd -nBC 4 makes them.
const (
	correctHorse = "$2a$04$hySpKxP2JgdiOtteP1h.MeOYqTuhXeo3oWhXbR6taNSUnId02GuW6"
	another      = "$2a$04$DggCSSglTjyRR/VAEm3pweHaqCPWK8s.hw26oJjevtD1XROv6diFu"
)

// write writes a file in dir and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate makes a key and a self-signed certificate for it. It writes both to files in dir,
// and returns them for a client.
func certificate(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	write(t, dir, name+".crt", string(certPEM))
	write(t, dir, name+".key", string(keyPEM))
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// served serves up with a configuration, and returns the address.
func served(t *testing.T, config string, handler slog.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(Serve(ln, up, config, slog.New(handler)))
	return ln.Addr().String()
}

// get requests the metrics and returns the HTTP status, or 0 if there is no answer.
func get(client *http.Client, url, user, password string) (status int, body string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestPasswords expects requests with the right password to succeed, and to fail after the
// password has changed.
func TestPasswords(t *testing.T) {
	dir := t.TempDir()
	config := write(t, dir, "web.yml", "basic_auth_users:\n  prometheus: "+correctHorse+"\n")
	url := "http://" + served(t, config, slog.DiscardHandler) + "/metrics"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(user, password string, want int) {
		t.Helper()
		status, body := get(client, url, user, password)
		if status != want || (body == "up 1\n") != (want == http.StatusOK) {
			t.Errorf("%s with %q: %d, %q; want %d", user, password, status, body, want)
		}
	}
	ask("prometheus", "correct horse", http.StatusOK)
	ask("prometheus", "another", http.StatusUnauthorized)
	ask("somebody", "correct horse", http.StatusUnauthorized)
	ask("", "", http.StatusUnauthorized)
	write(t, dir, "web.yml", "basic_auth_users:\n  prometheus: "+another+"\n")
	ask("prometheus", "correct horse", http.StatusUnauthorized)
	ask("prometheus", "another", http.StatusOK)
	write(t, dir, "web.yml", "no such key\n")
	ask("prometheus", "another", http.StatusInternalServerError)
}

// logged counts the log lines above the level of debugging.
type logged struct {
	slog.Handler
	lines atomic.Int32
}

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		l.lines.Add(1)
	}
	return nil
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }

// TestClientCertificates expects a client with a certificate of the authority to succeed, others
// to fail in the TLS handshake, and few log lines about them.
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	server, scraper := certificate(t, dir, "server"), certificate(t, dir, "scraper")
	stranger := certificate(t, dir, "stranger")
	config := write(t, dir, "web.yml", "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"+
		"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: scraper.crt\n")
	log := &logged{Handler: slog.DiscardHandler}
	addr := served(t, config, log)
	leaf, err := x509.ParseCertificate(server.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	ask := func(certs ...tls.Certificate) (int, string) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}}
		defer transport.CloseIdleConnections()
		return get(&http.Client{Transport: transport}, "https://"+addr+"/metrics", "", "")
	}
	if status, body := ask(scraper); status != http.StatusOK || body != "up 1\n" {
		t.Errorf("the scraper got %d, %q", status, body)
	}
	if n := log.lines.Load(); n != 0 {
		t.Errorf("%d lines are logged where nothing is wrong", n)
	}
	for range 5 {
		if status, body := ask(stranger); status != 0 {
			t.Errorf("a stranger got %d, %q", status, body)
		}
	}
	if status, body := ask(); status != 0 {
		t.Errorf("one without a certificate got %d, %q", status, body)
	}
	if n := log.lines.Load(); n < 1 || n > 3 {
		t.Errorf("%d lines are logged about two who were not let in", n)
	}
	if status, body := get(http.DefaultClient, "http://"+addr+"/metrics", "", ""); status == http.StatusOK {
		t.Errorf("without TLS: %d, %q", status, body)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "server")
	tlsOf := func(cert, key string) string {
		return "tls_server_config:\n  cert_file: " + cert + "\n  key_file: " + key + "\n"
	}
	for _, c := range []struct {
		name, text string
		status     int
		err        string
	}{
		{"nothing", "", 0, ""},
		{"TLS", tlsOf("server.crt", "server.key"), 0, ""},
		{"password", "basic_auth_users:\n  prometheus: " + correctHorse + "\n", 0, ""},
		{"no hash", "basic_auth_users:\n  prometheus: correct horse\n", exit.Usage, "hashedSecret too short"},
		{"unknown key", "tls: yes\n", exit.Usage, "field tls not found"},
		{"no certificate", tlsOf("none.crt", "server.key"), exit.Usage, "none.crt: no such file"},
		{"no key", "tls_server_config:\n  cert_file: server.crt\n", exit.Usage, "missing one of key or key_file"},
		{"no PEM", tlsOf("web.yml", "server.key"), exit.Usage, "failed to find any PEM data"},
		{"no authority", tlsOf("server.crt", "server.key") +
			"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n", exit.Missing, "ca.crt: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check(write(t, dir, "web.yml", c.text))
			if (err == nil) != (c.err == "") || exit.Status(err) != c.status ||
				err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v with status %d, want %q with %d", err, exit.Status(err), c.err, c.status)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "--metrics-config: ")) {
				t.Errorf("%q is no line about --metrics-config", err)
			}
		})
	}
	if err := Check(filepath.Join(dir, "none.yml")); exit.Status(err) != exit.Missing {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := Check(""); err != nil {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "web.yml",
		"tls_server_config:\n  cert_file: a.crt\n  key_file: /etc/b.key\n  client_ca_file: c/ca.crt\n")
	want := []string{path, filepath.Join(dir, "a.crt"), "/etc/b.key", filepath.Join(dir, "c/ca.crt")}
	if got := Files(path); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Files(write(t, dir, "web.yml", "\tnonsense")); !slices.Equal(got, []string{path}) {
		t.Errorf("%q of a file that is no YAML", got)
	}
	if got := Files(""); got != nil {
		t.Errorf("%q of no file", got)
	}
}
