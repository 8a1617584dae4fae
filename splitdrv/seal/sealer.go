package seal

import "errors"

// EpochTransfers is the number of transfers after which a Sealer uses new keys. With transfers of 64
// KiB these are 2^32 blocks of AES, after which an attacker's advantage against GCM is still below
// 2^-60.
const EpochTransfers = 1 << 20

// Sealer seals the transfers of one channel and direction. One goroutine uses it at a time.
type Sealer struct {
	half
	keys    *Keys
	number  uint64 // of the next transfer
	sealed  int    // transfers of this epoch
	renewal uint32 // value of Keys.renewal when the epoch began
}

// Sealer returns the sealer of a channel. mode is the name of the session's transfer mode; "" for
// the control channel, which is channel 0. It must be called once for each channel.
func (k *Keys) Sealer(channel int, mode string) *Sealer {
	return &Sealer{half: newHalf(k.cipher, k.secret, channel, mode, k.host), keys: k}
}

// Seal seals a transfer where it lies, and returns it with its tag behind it. transfer must have
// Overhead bytes of capacity behind its end. pool and element are those in which it will lie at the
// peer. Transfers must be sent in the order in which they are sealed, each once.
func (s *Sealer) Seal(transfer []byte, pool, element uint32) []byte {
	if r := s.keys.renewal.Load(); s.sealed >= EpochTransfers || r != s.renewal {
		s.renew()
		s.renewal = r
	}
	nonce, ad := s.arguments(s.number, len(transfer), pool, element)
	s.number++
	s.sealed++
	return s.aead.Seal(transfer[:0], nonce, transfer, ad)
}

func (s *Sealer) renew() {
	s.secret.next()
	s.aead, s.iv = s.secret.keys()
	s.sealed = 0
}

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
