package seal

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
