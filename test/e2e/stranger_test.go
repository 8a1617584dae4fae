package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// The tests in this file implement the bootstrap protocol by docs/protocol.md, without the product's
// own code.

// strangerTLS returns the TLS configuration of a peer that does not authenticate its peers.
func strangerTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"splitnic-insecure"}, MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
	}
}

// writeMessage sends one message.
func writeMessage(w io.Writer, message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// readMessage receives one message.
func readMessage(r io.Reader) (map[string]any, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > 65536 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	message := map[string]any{}
	return message, json.Unmarshal(b, &message)
}

// serve listens at a free port of unitAddress, calls answer for every connection, and returns the
// address.
func serve(t testing.TB, answer func(net.Conn) error) string {
	t.Helper()
	l, err := net.Listen("tcp", unitAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the end of the test
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if err := answer(c); err != nil {
				t.Errorf("the stranger: %v", err)
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

// TestRDMAOtherVersion connects each endpoint to a peer of another version, and a host to a server
// that is not an I/O unit. Each has to report the right error.
func TestRDMAOtherVersion(t *testing.T) {
	bin := needFabric(t)
	ns := testenv.NetNS(t)
	host := func(unit string) []string {
		return []string{"host", "--iounit", unit, "--device", hostDevice, "--netns", ns, "--insecure", "--status-socket",
			filepath.Join(t.TempDir(), "status")}
	}
	t.Run("I/O unit of another version", func(t *testing.T) {
		config := strangerTLS(t)
		at := serve(t, func(nc net.Conn) error {
			c := tls.Server(nc, config)
			defer c.Close()
			hello, err := readMessage(c)
			if err != nil {
				return err
			}
			versions, _ := hello["versions"].(map[string]any)
			if hello["type"] != "hello" || hello["magic"] != "splitnic" || versions["min"] == nil || versions["max"] == nil {
				return fmt.Errorf("not a hello: %v", hello)
			}
			return writeMessage(c, map[string]any{
				"type": "refuse", "code": "version", "message": "too old", "retry": false, "versions": map[string]int{"min": 8,
					"max": 9},
			})
		})
		mistake{"", host(at), exitVersion, []string{at, "8 to 9"}}.fails(t, bin)
	})
	t.Run("welcome of another version", func(t *testing.T) {
		config := strangerTLS(t)
		at := serve(t, func(nc net.Conn) error {
			c := tls.Server(nc, config)
			defer c.Close()
			if _, err := readMessage(c); err != nil {
				return err
			}
			return writeMessage(c, map[string]any{"type": "welcome", "version": 9})
		})
		mistake{"", host(at), exitVersion, []string{at, "9"}}.fails(t, bin)
	})
	t.Run("not an I/O unit", func(t *testing.T) {
		at := serve(t, func(c net.Conn) error {
			_, err := c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			return err
		})
		mistake{"", host(at), exitFailure, []string{at}}.fails(t, bin)
	})
	t.Run("host of another version", func(t *testing.T) {
		r := newFixture(t, "macvtap")
		r.unit.stop()
		r.insecure = true
		r.startUnit()
		c, err := tls.Dial("tcp", unitAddress+":7580", strangerTLS(t))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if err := writeMessage(c, map[string]any{"type": "hello", "magic": "splitnic",
			"versions": map[string]int{"min": 8, "max": 9}}); err != nil {
			t.Fatal(err)
		}
		answer, err := readMessage(c)
		if err != nil {
			t.Fatal(err)
		}
		versions, _ := answer["versions"].(map[string]any)
		if answer["type"] != "refuse" || answer["code"] != "version" || answer["retry"] != false || versions["max"] == nil {
			t.Errorf("the I/O unit answers %v", answer)
		}
		eventually(t, func() bool { return r.unit.unitStatus().Refused == 1 }, "a status that counts the refusal")
		// A host with keys has to report the error, and a host without keys has to be served.
		n := r.newHost(t)
		select {
		case <-n.done:
		case <-time.After(patience):
			t.Fatal("a host with keys was not refused by an insecure I/O unit")
		}
		n.failed(exitKeys, unitAddress, "--insecure")
		n.insecure = true
		n.start()
		n.ready()
		ping(t, n.ns, addr(0), 2, 56)
	})
}
