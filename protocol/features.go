package protocol

// FeatureLatencyQueue is the feature, in hello and welcome, of a session whose last data channel,
// of at least two, is the latency channel, for frames that must not wait behind others. Both sides
// lend elements there for single frames up to the largest MTU of the hello, or 9216 if that is less.
const FeatureLatencyQueue = "latency-queue"

// FeatureBind is the feature, in hello and welcome, of a session in which each side proves by its
// first control message, a CfgUtilRequest of type CfgBind, that it is the side of the bootstrap
// connection.
const FeatureBind = "bind"

// FeaturePathMTU is the feature of sides whose second control message, after the proof of
// FeatureBind, is a CfgPath as long as the path MTU, so that a session begins only where packets of
// that length get through.
const FeaturePathMTU = "path-mtu"

// FeatureWindow is the feature of sides that invalidate the memory window of a pool of the peer by a
// message, after their last use of the pool, if the pool has PoolInvalidate.
const FeatureWindow = "window"

// FeatureOneTouch is the feature of sides that write to pools with a key for each element. The key
// changes each time the element is lent. Such pools have memory handle 0, and their first keys are
// in CfgPoolKeys.
const FeatureOneTouch = "one-touch"

// FeatureKeySend is the feature of sides that receive the key of a pool by a message on the pool's
// data channel, if the pool has PoolKeyFollows.
const FeatureKeySend = "key-send"

// FeatureRenew is the feature, in hello and welcome, of a session that can change to new
// certificates. The sides present them on a second connection, with a message renew.
const FeatureRenew = "renew"

// FeatureDirect is the feature, in hello and welcome, of a host that makes direct connections to
// other hosts, and of an I/O unit that directs them by messages on the bootstrap connection.
const FeatureDirect = "direct"

// FeatureDrain is the feature, in hello and welcome, of a host that changes to another I/O unit on
// request, by a message on the bootstrap connection.
const FeatureDrain = "drain"

// FeatureStandby is the feature, in hello and welcome, of a session whose host uses another session.
// The I/O unit keeps the host's port on the LAN down until the host sets it up by CfgLinkState.
const FeatureStandby = "standby"
