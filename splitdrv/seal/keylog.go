package seal

import (
	"fmt"
	"io"
	"os"
)

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
