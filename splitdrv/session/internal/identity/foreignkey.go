package identity

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/internal/printable"
)

const keyPEMType = "PRIVATE KEY" // PKCS #8, RFC 5958

// privateKey returns the first PEM block of a text that can have a key, or nil. There may be
// others before it, such as a certificate.
func privateKey(text []byte) *pem.Block {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == keyPEMType {
			return block
		}
	}
	return nil
}

// makeOne says how to get a key beside a file that has none. keygen does not replace a file.
const makeOne = "make a key in another file with: splitnic keygen --out NEW"

// foreignKey returns what a text without such a block has instead, and what to do about it. It
// returns "" if it is nothing that is known. The result has nothing of the key.
func foreignKey(text []byte) string {
	found := ""
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "ENCRYPTED PRIVATE KEY":
			return "a key that is encrypted with a password, which nobody could enter at a start; decrypt it with: openssl pkey -in FILE -out NEW if it is an Ed25519 key, otherwise " + makeOne
		case "OPENSSH PRIVATE KEY":
			return "a key of OpenSSH, in its own format; " + makeOne
		case "CERTIFICATE", "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST":
			found = "a " + strings.ToLower(strings.TrimPrefix(block.Type, "NEW ")) + ", and no private key: --key is for the key that `splitnic keygen` has written, --cert for the certificate"
		case "PUBLIC KEY":
			found = "a public key; --key is for the private key, which `splitnic keygen` has written"
		default:
			if kind, ok := strings.CutSuffix(block.Type, " PRIVATE KEY"); ok { // EC, RSA, DSA
				return fmt.Sprintf("a key of kind %s, and only Ed25519 keys are used; %s", word(kind), makeOne)
			}
		}
	}
	switch {
	case found != "":
		return found
	case bytes.HasPrefix(text, []byte("PuTTY-User-Key-File")):
		return "a key of PuTTY; " + makeOne
	case bytes.HasPrefix(text, []byte("ssh-")), bytes.HasPrefix(text, []byte("ecdsa-sha2-")):
		return "a public key of OpenSSH; " + makeOne
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("sha256:")):
		return "a fingerprint, which is for --trust; --key is for the private key, which `splitnic keygen` has written"
	case len(text) > 1 && text[0] == 0x30 && text[1] < 0x84: // a SEQUENCE of ASN.1
		return "binary data, perhaps a key in DER; if it is an Ed25519 key: openssl pkey -inform DER -in FILE -out NEW, otherwise " + makeOne
	}
	return ""
}

// word returns a word of a PEM type for display.
func word(s string) string { return fmt.Sprintf("%.20s", printable.Text(s)) }

// kindOf describes the kind of a parsed key.
func kindOf(key any) string {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		return "an EC key (" + k.Curve.Params().Name + ")"
	case *rsa.PrivateKey:
		return fmt.Sprintf("an RSA key of %d bits", k.N.BitLen())
	case *ecdh.PrivateKey:
		return "an X25519 key, which cannot sign"
	}
	return "one of another kind"
}
