package seal

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// SecretSize is the size in bytes of the secret of a session.
const SecretSize = 32

// Keys is the secret of a session with all that is derived from it. Its string methods do not show
// it.
type Keys struct {
	cipher  Cipher
	secret  [SecretSize]byte
	host    bool
	renewal atomic.Uint32 // how often Renew was called
}

// NewKeys returns the keys of one side. secret must be known only to the two sides of the session,
// and belong to no other one; host says which of them this is.
func NewKeys(c Cipher, secret [SecretSize]byte, host bool) (*Keys, error) {
	if c.keySize() == 0 {
		return nil, fmt.Errorf("%w %q", ErrCipher, c)
	}
	return &Keys{cipher: c, secret: secret, host: host}, nil
}

// Cipher returns the cipher.
func (k *Keys) Cipher() Cipher { return k.cipher }

// Secret returns the secret of the session, for a key log.
func (k *Keys) Secret() [SecretSize]byte { return k.secret }

func (k *Keys) String() string { return fmt.Sprintf("keys for %s", k.cipher) }

// GoString implements fmt.GoStringer.
func (k *Keys) GoString() string { return "seal.Keys" }

// Renew makes each Sealer use new keys from its next transfer on. Any goroutine may call it. The
// other side notices the new keys by trying them.
func (k *Keys) Renew() { k.renewal.Add(1) }

// KeyLog is a file to which the secrets of sessions are written, so that captures of the fabric can
// be decrypted. A nil KeyLog is none.
type KeyLog struct{ file io.Writer }

// OpenKeyLog opens a file to append to. A file that it makes can be read by its owner only.
func OpenKeyLog(path string) (*KeyLog, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &KeyLog{f}, nil
}

// Add appends the secret of a session, whose keys are nil if it is not encrypted, by one write: other
// processes may append to the same file.
func (l *KeyLog) Add(session string, k *Keys) error {
	if l == nil || k == nil {
		return nil
	}
	_, err := fmt.Fprintf(l.file, "SPLITNIC_FRAMES %s %s %x\n", session, k.Cipher(), k.Secret())
	return err
}
