package identity

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/splitnic/splitnic/internal/bom"
)

// maxPEMFile is the size in bytes of the largest file with a key, a certificate or a list of them.
const maxPEMFile = 1 << 20

// Key is a private Ed25519 key. It prints as its fingerprint, so that it cannot appear in a
// log.
type Key struct {
	private ed25519.PrivateKey
}

// GenerateKey generates a new key.
func GenerateKey() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return &Key{private}, nil
}

// Public returns the public key.
func (k *Key) Public() crypto.PublicKey { return k.private.Public() }

// Fingerprint returns the fingerprint of the public key, which the peers have to trust.
func (k *Key) Fingerprint() Fingerprint {
	spki, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		panic(fmt.Sprintf("encode an Ed25519 public key: %v", err)) // cannot fail
	}
	return sha256.Sum256(spki)
}

// String returns the key's fingerprint.
func (k *Key) String() string { return k.Fingerprint().String() }

// GoString implements fmt.GoStringer, and does not show the key.
func (k *Key) GoString() string { return "session.Key(" + k.String() + ")" }

// SaveKey writes k to a new file that only its owner can read. If the file exists, the error
// wraps fs.ErrExist. If the process is killed or the machine stops, the file is complete or
// does not exist. The file system must have hard links.
func SaveKey(path string, k *Key) error {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return fmt.Errorf("save key %s: %w", path, err)
	}
	err = writeNew(path, pem.EncodeToMemory(&pem.Block{Type: keyPEMType, Bytes: der}))
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("save key: %w; a key is not overwritten, move it away first", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("save key: %w; make the directory %s first", err, filepath.Dir(path))
	case err != nil:
		return fmt.Errorf("save key: %w", err)
	}
	return nil
}

// writeNew creates a file that only its owner can access. It has another name until it is
// complete. Errors have the path of the file.
func writeNew(path string, content []byte) (err error) {
	defer func() {
		if file, ok := errors.AsType[*fs.PathError](err); ok {
			err = &fs.PathError{Op: "open", Path: path, Err: file.Err}
		} else if link, ok := errors.AsType[*os.LinkError](err); ok {
			err = &fs.PathError{Op: "open", Path: path, Err: link.Err}
		}
	}()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := os.CreateTemp(dir.Name(), "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // a rename would replace a file
		return err
	}
	if err := dir.Sync(); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// checkAccess returns an error if users other than this process's user and root can read or
// replace a key, like ssh does. A group may read a key of root: systemd provides credentials
// of a service like that (systemd.exec(5)), where the group's bits represent an ACL.
func checkAccess(path string, mode fs.FileMode, owner, user uint32) error {
	excess := mode & 0o077
	if owner == 0 && user != 0 {
		excess &^= 0o040
	}
	switch {
	case owner != 0 && owner != user:
		return fmt.Errorf("it belongs to user %d, who could read and replace it; if nobody has: chown %d %s, otherwise %s",
			owner, user, path, makeOne)
	case excess != 0:
		return fmt.Errorf("users other than its owner have access (mode %#o); if nobody has read it: chmod 600 %s, otherwise %s",
			mode, path, makeOne)
	}
	return nil
}

func ownerOf(info fs.FileInfo) uint32 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return 0
}

// LoadKey reads a key written by SaveKey or openssl genpkey -algorithm ed25519. It returns
// an error if users other than the owner may read the file, or if the owner is neither root
// nor this process's user.
func LoadKey(path string) (*Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would block
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load key: %w; make one with: splitnic keygen --out %s", err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("load key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("load key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("load key %s: not a regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPEMFile))
	if err != nil {
		return nil, fmt.Errorf("load key: %w", err)
	}
	if b, err = bom.Cut(b); err != nil {
		return nil, fmt.Errorf("load key %s: %w", path, err)
	}
	block := privateKey(b)
	if block == nil {
		if what := foreignKey(b); what != "" {
			return nil, fmt.Errorf("load key %s: it has %s", path, what)
		}
		return nil, fmt.Errorf("load key %s: no PEM block %q in it; %s", path, keyPEMType, makeOne)
	}
	// Only now: the advice about access would harm a file that is no key, such as /etc/passwd.
	if err := checkAccess(path, info.Mode().Perm(), ownerOf(info), uint32(os.Geteuid())); err != nil {
		return nil, fmt.Errorf("load key %s: %w", path, err)
	}
	// The parser's error is left out, because it may describe the content.
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("load key %s: the PEM block is damaged or not PKCS #8; %s", path, makeOne)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("load key %s: not an Ed25519 key; it is %s; %s", path, kindOf(parsed), makeOne)
	}
	return &Key{private}, nil
}

// SeedSize is the size of a seed in bytes.
const SeedSize = ed25519.SeedSize

// KeyFromSeed returns the key of a seed, the same one each time. It is meant for two sides
// that derive both keys from a shared secret. The key is as secret as the seed.
func KeyFromSeed(seed [SeedSize]byte) *Key {
	return &Key{ed25519.NewKeyFromSeed(seed[:])}
}
