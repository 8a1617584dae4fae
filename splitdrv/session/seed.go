package session

import "crypto/ed25519"

// SeedSize is the size in bytes of what a key can be made from.
const SeedSize = ed25519.SeedSize

// KeyFromSeed is the key that belongs to a seed, the same one each time: for
// two sides that share a secret and derive both keys from it. Whoever can guess
// the seed has the key.
func KeyFromSeed(seed [SeedSize]byte) *Key {
	return &Key{ed25519.NewKeyFromSeed(seed[:])}
}
