// Package seal encrypts and authenticates what crosses the channels of a session: transfers on
// the data channels, and messages on the control channel. The fabric then sees lengths and times
// only, and what somebody else has written or changed is not delivered.
//
//	cipher.go  Cipher: the ciphers by name; Wish: what a side wants, and what two of them agree
//	keys.go    Keys: the secret of a session, from which those of its channels are derived; KeyLog
//	secret.go  the secret of one channel and direction, and its successors
//	sealer.go  Sealer and Opener: the sending and the receiving side of a channel
//
// Both sides count the transfers of a channel, from 0. The number is part of the nonce and is not
// sent, except that a SendData has it as its sequence number. It never begins again, also not with
// new keys; so a nonce is used once for each key. docs/protocol.md has all the bytes.
package seal
