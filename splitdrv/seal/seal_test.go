package seal

import (
	"bytes"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// pair returns the sealer of a host's channel and the opener of the I/O unit's.
func pair(t testing.TB, c Cipher, channel int, mode string) (*Sealer, *Opener) {
	t.Helper()
	var ends [2]*Keys
	for i := range ends {
		k, err := NewKeys(c, [SecretSize]byte{1, 2, 3}, i == 0)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = k
	}
	return ends[0].Sealer(channel, mode), ends[1].Opener(channel, mode)
}

// sealed returns a transfer with its tag.
func sealed(s *Sealer, plain string, pool, element uint32) []byte {
	b := append(make([]byte, 0, len(plain)+Overhead), plain...)
	return s.Seal(b, pool, element)
}

func eachCipher(t *testing.T, test func(t *testing.T, c Cipher)) {
	for _, c := range Ciphers() {
		t.Run(string(c), func(t *testing.T) { test(t, c) })
	}
}

// TestSealAndOpen seals and opens transfers of many sizes, over renewals by time.
func TestSealAndOpen(t *testing.T) {
	eachCipher(t, func(t *testing.T, c Cipher) {
		s, o := pair(t, c, 1, "imm")
		r := rand.New(rand.NewPCG(1, 2))
		dst := make([]byte, 70000)
		epochs := map[[SecretSize]byte]bool{}
		for i := range 300 {
			plain := make([]byte, r.IntN(1+i*i*65563/90000))
			for j := range plain {
				plain[j] = byte(r.Uint32())
			}
			if i%7 == 0 {
				s.keys.Renew()
			}
			at := rand.New(rand.NewPCG(3, uint64(i)))
			pool, element, shared := at.Uint32(), at.Uint32(), i%2 == 0
			b := sealed(s, string(plain), pool, element)
			if len(plain) > 16 && bytes.Contains(b, plain[:16]) {
				t.Fatalf("transfer %d of %d bytes is sent as it is", i, len(plain))
			}
			epochs[s.secret.value] = true
			got, err := o.Open(dst, b, uint64(i), pool, element, shared)
			if err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("transfer %d of %d bytes: %v", i, len(plain), err)
			}
		}
		if len(epochs) != 43 {
			t.Errorf("%d epochs", len(epochs))
		}
	})
}

// TestBothDirections uses the same channel in both directions: the keys must differ, although numbers
// and contents are the same.
func TestBothDirections(t *testing.T) {
	eachCipher(t, func(t *testing.T, c Cipher) {
		var seen [][]byte
		for _, host := range []bool{true, false} {
			for _, secret := range [][SecretSize]byte{{1}, {2}} {
				for _, channel := range []int{0, 1, 2, 255} {
					k, err := NewKeys(c, secret, host)
					if err != nil {
						t.Fatal(err)
					}
					b := sealed(k.Sealer(channel, "imm"), "the same", 1, 2)
					if slices.ContainsFunc(seen, func(o []byte) bool { return bytes.Equal(o, b) }) {
						t.Errorf("host %v, channel %d: sealed with the keys of another one", host, channel)
					}
					seen = append(seen, b)
				}
			}
		}
	})
}

// TestNotAuthentic changes transfers in each way that somebody on the fabric can.
func TestNotAuthentic(t *testing.T) {
	const plain = "a frame of the peer, which nobody changes"
	type transfer struct {
		bytes         []byte
		number        uint64
		pool, element uint32
	}
	for _, tt := range []struct {
		name   string
		change func(s *Sealer, x *transfer)
	}{
		{"first bit", func(_ *Sealer, x *transfer) { x.bytes[0] ^= 0x80 }},
		{"last bit", func(_ *Sealer, x *transfer) { x.bytes[len(plain)-1] ^= 1 }},
		{"tag", func(_ *Sealer, x *transfer) { x.bytes[len(x.bytes)-1] ^= 1 }},
		{"truncated", func(_ *Sealer, x *transfer) { x.bytes = x.bytes[:len(x.bytes)-1] }},
		{"truncated at the front", func(_ *Sealer, x *transfer) { x.bytes = x.bytes[1:] }},
		{"lengthened", func(_ *Sealer, x *transfer) { x.bytes = append(x.bytes, 0) }},
		{"shorter than a tag", func(_ *Sealer, x *transfer) { x.bytes = x.bytes[:Overhead-1] }},
		{"empty", func(_ *Sealer, x *transfer) { x.bytes = nil }},
		{"plain", func(_ *Sealer, x *transfer) { x.bytes = []byte(plain + strings.Repeat("\x00", Overhead)) }},
		{"another element", func(_ *Sealer, x *transfer) { x.element++ }},
		{"another pool", func(_ *Sealer, x *transfer) { x.pool++ }},
		{"the one after it", func(s *Sealer, x *transfer) { x.bytes = sealed(s, plain, x.pool, x.element) }},
		{"of the future", func(_ *Sealer, x *transfer) { x.number++ }},
		{"of the past", func(_ *Sealer, x *transfer) { x.number-- }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachCipher(t, func(t *testing.T, c Cipher) {
				s, o := pair(t, c, 1, "imm")
				dst := make([]byte, 1000)
				if _, err := o.Open(dst, sealed(s, "before", 3, 4), 0, 3, 4, true); err != nil {
					t.Fatal(err)
				}
				good := transfer{bytes: sealed(s, plain, 3, 4), number: 1, pool: 3, element: 4}
				bad := good
				bad.bytes = slices.Clone(good.bytes)
				tt.change(s, &bad)
				for _, shared := range []bool{false, true} {
					clear(dst)
					if _, err := o.Open(dst, bad.bytes, bad.number, bad.pool, bad.element, shared); !errors.Is(err, ErrNotAuthentic) {
						t.Fatalf("opened: %v", err)
					}
					if bytes.Contains(dst, []byte("frame of the peer")) && tt.name != "plain" {
						t.Error("what is not authentic is there to be read")
					}
				}
				// The opener is as before.
				if got, err := o.Open(dst, good.bytes, 1, 3, 4, true); err != nil || string(got) != plain {
					t.Errorf("afterwards the right one is refused: %v", err)
				}
				if _, err := o.Open(dst, good.bytes, 1, 3, 4, true); !errors.Is(err, ErrNotAuthentic) {
					t.Errorf("repeated: %v", err)
				}
			})
		})
	}
}

// TestModesDiffer opens a transfer of one mode as that of another, and of one channel on another.
func TestModesDiffer(t *testing.T) {
	s, _ := pair(t, AES128GCM, 1, "imm")
	b := sealed(s, "frame", 0, 0)
	for _, other := range []struct {
		channel int
		mode    string
	}{{1, "indicate"}, {1, "send"}, {1, ""}, {2, "imm"}, {0, "imm"}} {
		_, o := pair(t, AES128GCM, other.channel, other.mode)
		if _, err := o.Open(make([]byte, 100), b, 0, 0, 0, false); !errors.Is(err, ErrNotAuthentic) {
			t.Errorf("channel 1, imm, is opened as channel %d, %q: %v", other.channel, other.mode, err)
		}
	}
}

// TestLost loses transfers, and with some of them the only ones of their epochs.
func TestLost(t *testing.T) {
	eachCipher(t, func(t *testing.T, c Cipher) {
		s, o := pair(t, c, 1, "send-uc")
		dst := make([]byte, 100)
		for n := range uint64(200) {
			if n%3 != 0 {
				s.keys.Renew()
			}
			b := sealed(s, fmt.Sprint("message ", n), 0, uint32(n%64))
			if n%16 != 15 && n%5 != 0 {
				continue
			}
			if got, err := o.Open(dst, b, n, 0, uint32(n%64), false); err != nil || string(got) != fmt.Sprint("message ", n) {
				t.Fatalf("message %d: %v", n, err)
			}
		}
	})
}

// TestSharedMemoryIsReadOnce changes the memory of a transfer while it is opened: after each change
// that the cipher could see, what is opened must still be what was authentic.
func TestSharedMemoryIsReadOnce(t *testing.T) {
	s, o := pair(t, AES128GCM, 1, "imm")
	element := sealed(s, "what the peer has sent", 1, 1)
	o.aead = rewritten{o.aead, element}
	got, err := o.Open(make([]byte, 100), element, 0, 1, 1, true)
	if err != nil || string(got) != "what the peer has sent" {
		t.Errorf("%q, %v", got, err)
	}
}

// rewritten is a cipher during whose work somebody writes to the element.
type rewritten struct {
	cipher.AEAD
	element []byte
}

func (r rewritten) Open(dst, nonce, ciphertext, ad []byte) ([]byte, error) {
	r.element[0] ^= 1
	return r.AEAD.Open(dst, nonce, ciphertext, ad)
}

// TestNonces seals transfers over the end of an epoch and over renewals; then as if 2^32 and more were
// sent. No nonce may be used twice with a key, and each epoch must have its own.
func TestNonces(t *testing.T) {
	s, o := pair(t, AES128GCM, 1, "imm")
	epochs := map[[SecretSize]byte]bool{}
	type use struct {
		secret [SecretSize]byte
		nonce  [nonceSize]byte
	}
	used, dst := map[use]bool{}, make([]byte, 100)
	send := func(n int) {
		for range n {
			number := s.number
			b := sealed(s, "x", 1, 2)
			u := use{s.secret.value, s.nonce}
			if used[u] {
				t.Fatalf("transfer %d has a nonce that was used with the same key", number)
			}
			used[u], epochs[u.secret] = true, true
			if _, err := o.Open(dst, b, number, 1, 2, false); err != nil {
				t.Fatalf("transfer %d: %v", number, err)
			}
		}
	}
	send(EpochTransfers / 64)
	s.sealed = EpochTransfers - 50 // as if the rest of the epoch was sent
	send(100)
	if len(epochs) != 2 {
		t.Errorf("%d epochs after the transfers of one", len(epochs))
	}
	for range 3 {
		s.keys.Renew()
		send(10)
	}
	for _, number := range []uint64{1<<32 - 3, 1<<40 + 1} {
		s.number, o.expected = number, number
		send(10)
	}
	if len(epochs) != 5 {
		t.Errorf("%d epochs after three renewals more", len(epochs))
	}
}

// TestSecretsAreOverwritten expects nothing of an epoch's secret in memory after the next one began.
func TestSecretsAreOverwritten(t *testing.T) {
	s, _ := pair(t, AES256GCM, 1, "imm")
	first := s.secret.value
	s.keys.Renew()
	sealed(s, "x", 0, 0)
	if s.secret.value == first {
		t.Error("the secret of an ended epoch is kept")
	}
}

// TestVectors compares with bytes that another implementation, of Python's cryptography, has made
// from docs/protocol.md: testdata/vectors.py.
func TestVectors(t *testing.T) {
	var secret [SecretSize]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	for _, v := range vectors {
		t.Run(fmt.Sprintf("%s, channel %d, host %v, transfer %d, epoch %d", v.cipher, v.channel, v.host, v.number, v.epoch),
			func(t *testing.T) {
				k, err := NewKeys(v.cipher, secret, v.host)
				if err != nil {
					t.Fatal(err)
				}
				s := k.Sealer(v.channel, v.mode)
				for range v.epoch {
					s.renew()
				}
				s.number = v.number
				if got := hex.EncodeToString(sealed(s, "a frame on the fabric", 7, 5)); got != v.sealed {
					t.Errorf("sealed:\n%s\nwant:\n%s", got, v.sealed)
				}
			})
	}
}

// TestChoose chooses the cipher of two sides.
func TestChoose(t *testing.T) {
	aes, chacha := ordered(true), ordered(false)
	for _, tt := range []struct {
		ours, theirs []Cipher
		want         Cipher
	}{
		{aes, aes, AES128GCM},
		{aes, chacha, ChaCha20Poly1305},
		{chacha, aes, ChaCha20Poly1305},
		{chacha, []Cipher{AES256GCM}, AES256GCM},
		{aes, []Cipher{"unknown", AES256GCM, AES128GCM}, AES256GCM},
		{[]Cipher{AES256GCM}, aes, AES256GCM},
		{[]Cipher{AES256GCM}, []Cipher{AES128GCM}, ""},
		{aes, nil, ""},
		{nil, aes, ""},
		{[]Cipher{"unknown"}, []Cipher{"unknown"}, ""},
	} {
		if got := Choose(tt.ours, tt.theirs); got != tt.want {
			t.Errorf("%v and %v: %q, want %q", tt.ours, tt.theirs, got, tt.want)
		}
	}
}

// TestParseCiphers parses lists.
func TestParseCiphers(t *testing.T) {
	got, err := ParseCiphers("aes-256-gcm, chacha20-poly1305")
	if err != nil || Names(got) != "aes-256-gcm,chacha20-poly1305" {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "aes", "aes-128-gcm,", "aes-128-gcm,aes-128-gcm"} {
		if _, err := ParseCiphers(bad); !errors.Is(err, ErrCipher) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := NewKeys("rot13", [SecretSize]byte{}, true); !errors.Is(err, ErrCipher) {
		t.Error(err)
	}
}

// TestNothingIsShown prints keys.
func TestNothingIsShown(t *testing.T) {
	k, err := NewKeys(AES128GCM, [SecretSize]byte{0xab, 0xcd, 0xef}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		for _, secret := range []string{"abcdef", "171", "0xab"} {
			if s := fmt.Sprintf(format, k); strings.Contains(s, secret) {
				t.Errorf("%s: %s", format, s)
			}
		}
	}
}

// FuzzOpen opens any bytes: nothing but what was sealed may be opened.
func FuzzOpen(f *testing.F) {
	s, _ := pair(f, AES128GCM, 1, "imm")
	f.Add(sealed(s, "frame", 1, 2), uint64(0), uint32(1), uint32(2), true)
	f.Add([]byte(nil), uint64(1), uint32(0), uint32(0), false)
	f.Add(make([]byte, Overhead), uint64(3), uint32(0), uint32(0), false)
	f.Fuzz(func(t *testing.T, b []byte, number uint64, pool, element uint32, shared bool) {
		s, o := pair(t, AES128GCM, 1, "imm")
		right := sealed(s, "frame", 1, 2)
		number %= 64 // each lost transfer may have begun an epoch
		got, err := o.Open(make([]byte, len(b)), b, number, pool, element, shared)
		is := bytes.Equal(b, right) && number == 0 && pool == 1 && element == 2
		if (err == nil) != is || is && string(got) != "frame" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
