package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// secret is that of one channel and direction, for one epoch. An epoch is the time between two
// renewals of the keys. The secret of the next epoch is derived from that of this one, which is then
// overwritten: what was sent before cannot be opened with it.
type secret struct {
	cipher Cipher
	value  [SecretSize]byte
}

// newSecret returns the first secret of a channel and direction.
func newSecret(c Cipher, session [SecretSize]byte, channel int, fromHost bool) secret {
	info := append([]byte("splitnic channel "), c...)
	direction := byte(1)
	if fromHost {
		direction = 0
	}
	info = binary.BigEndian.AppendUint16(append(info, direction), uint16(channel))
	s := secret{cipher: c}
	expand(s.value[:], session[:], string(info))
	return s
}

// expand fills dst with HKDF-Expand of SHA-256 (RFC 5869). A secret is uniformly random, so nothing
// is extracted first.
func expand(dst, secret []byte, info string) {
	b, err := hkdf.Expand(sha256.New, secret, info, len(dst))
	if err != nil {
		panic(err) // only for more than 8160 bytes
	}
	copy(dst, b)
	clear(b)
}

// OfDirect returns the secret for the keys of a direct connection from that of its offer, which has
// other uses too.
func OfDirect(offer [SecretSize]byte) (secret [SecretSize]byte) {
	expand(secret[:], offer[:], "splitnic frames")
	return secret
}

// keys returns the cipher with the key of the epoch, and its initialisation vector.
func (s *secret) keys() (cipher.AEAD, [nonceSize]byte) {
	var iv [nonceSize]byte
	expand(iv[:], s.value[:], "iv")
	key := make([]byte, s.cipher.keySize())
	expand(key, s.value[:], "key")
	a, err := s.cipher.aead(key)
	if err != nil {
		panic(err) // only for a wrong size of the key
	}
	clear(key)
	return a, iv
}

// next replaces the secret by that of the next epoch.
func (s *secret) next() { expand(s.value[:], s.value[:], "next") }

// half is what both sides of a channel have for one direction.
type half struct {
	secret secret
	mode   string
	aead   cipher.AEAD
	iv     [nonceSize]byte

	// The arguments of the cipher, which are here because on the stack they would escape.
	nonce [nonceSize]byte
	ad    [32]byte
}

func newHalf(c Cipher, session [SecretSize]byte, channel int, mode string, fromHost bool) half {
	h := half{secret: newSecret(c, session, channel, fromHost), mode: mode}
	h.aead, h.iv = h.secret.keys()
	return h
}

// arguments returns the nonce and the associated data of a transfer of size bytes.
func (h *half) arguments(number uint64, size int, pool, element uint32) (nonce, ad []byte) {
	h.nonce = h.iv
	low := h.nonce[nonceSize-8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)^number)
	if h.mode == "" {
		return h.nonce[:], nil
	}
	binary.BigEndian.PutUint32(h.ad[0:], pool)
	binary.BigEndian.PutUint32(h.ad[4:], element)
	binary.BigEndian.PutUint32(h.ad[8:], uint32(size))
	return h.nonce[:], h.ad[:12+copy(h.ad[12:], h.mode)]
}
