package protocol

// FeatureLatencyQueue is the word, in hello and welcome, for a session whose
// last data channel, of two at least, is the latency channel: for frames that
// are not to wait behind others. Both sides lend elements there for single
// frames up to the largest MTU of the hello, or 9216 if that is less.
const FeatureLatencyQueue = "latency-queue"

// FeatureBind is the word, in hello and welcome, for a session in which each
// side proves with its first control message that it is the one of the bootstrap
// connection: a CfgUtilRequest about CfgBind.
const FeatureBind = "bind"

// FeatureWindow is the word for sides that invalidate the memory window around
// a pool of the other's by a message, as the last thing they do with it, if the
// pool says that it wants that: see PoolInvalidate.
const FeatureWindow = "window"

// FeatureOneTouch is the word for sides that write to pools with a key for each
// element, which changes each time that the element is lent: those with memory
// handle 0, whose first keys have come by CfgPoolKeys.
const FeatureOneTouch = "one-touch"

// FeatureKeySend is the word for sides that take the key of a pool by a message on
// the pool's data channel, if the pool says that it comes so: see PoolKeyFollows.
const FeatureKeySend = "key-send"

// FeatureRenew is the word, in hello and welcome, for a session that goes on by new
// certificates: the host shows its own, and sees the I/O unit's, on a second
// connection, by a message renew.
const FeatureRenew = "renew"

// FeatureDirect is the word, in hello and welcome, for a host that makes direct
// connections to other hosts, and an I/O unit that directs them, by messages on the
// bootstrap connection.
const FeatureDirect = "direct"

// FeatureDrain is the word, in hello and welcome, for a host that can be asked to go to
// another I/O unit, by a message on the bootstrap connection.
const FeatureDrain = "drain"
