package seal

import "errors"

// ErrNotAuthentic is the error of a transfer or message that the peer has not sealed with the keys
// of the session, or not as this one: it was changed, invented, repeated, or moved.
var ErrNotAuthentic = errors.New("not authentic")

// Opener opens the transfers of one channel and direction, in the order in which they were sealed.
// One goroutine uses it at a time.
type Opener struct {
	half
	expected uint64 // number after that of the latest opened transfer
}

// Opener returns the opener of a channel; the arguments are those of Sealer.
func (k *Keys) Opener(channel int, mode string) *Opener {
	return &Opener{half: newHalf(k.cipher, k.secret, channel, mode, !k.host)}
}

// Expected returns the number of the transfer that is opened next if none is lost.
func (o *Opener) Expected() uint64 { return o.expected }

// Open opens a transfer into dst, which must have len(sealed) bytes of capacity, and returns it,
// without its tag, as a slice of dst. number is its number: not below Expected, and above only where
// transfers can be lost.
//
// If shared, somebody else can change sealed at any time. The ciphers read their input twice, so
// it is copied to dst first: what is returned is what was authentic. dst and sealed must not overlap.
//
// After an error, dst has nothing of the transfer, and the Opener is as before.
func (o *Opener) Open(dst, sealed []byte, number uint64, pool, element uint32, shared bool) ([]byte, error) {
	if len(sealed) < Overhead || number < o.expected {
		return nil, ErrNotAuthentic
	}
	opened, err := o.try(dst, sealed, number, pool, element, shared)
	if err == nil {
		o.expected = number + 1
		return opened, nil
	}
	// Each transfer can be the first of an epoch, so there is at most one more epoch than there are
	// lost transfers.
	was := o.half
	for range number - o.expected + 1 {
		o.advance()
		if opened, err = o.try(dst, sealed, number, pool, element, shared); err == nil {
			o.expected = number + 1
			return opened, nil
		}
	}
	o.half = was
	return nil, ErrNotAuthentic
}

// advance goes to the next epoch.
func (o *Opener) advance() {
	o.secret.next()
	o.aead, o.iv = o.secret.keys()
}

func (o *Opener) try(dst, sealed []byte, number uint64, pool, element uint32, shared bool) ([]byte, error) {
	nonce, ad := o.arguments(number, len(sealed)-Overhead, pool, element)
	if shared {
		sealed = dst[:copy(dst[:len(sealed)], sealed)]
	}
	return o.aead.Open(dst[:0], nonce, sealed, ad)
}
