package fabrictest

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// Pair is what the conformance suite runs on: two devices that reach each
// other. They may be the same device, opened twice. Whoever makes the pair
// closes them, after the test, with t.Cleanup; the suite may have closed them
// before.
type Pair struct {
	A, B   fabric.Device
	Traits Traits

	// Timing is for every connection that a test does not need special timing
	// for; zero fields have their defaults.
	Timing fabric.Timing
	// Scale divides the number of messages of the long tests; 0 means 1.
	Scale int
	// Patience is how long one step may take before the test fails; 0 means
	// 20 seconds. A pass never takes that long.
	Patience time.Duration
	// RNR, if not nil, returns how often a message found no receive posted.
	RNR func() uint64
}

// Run checks an implementation of package fabric against its contract. newPair
// is called once per subtest.
func Run(t *testing.T, newPair func(t *testing.T) Pair) {
	for _, c := range []struct {
		name string
		f    func(*rig)
	}{
		{"Order", testOrder},
		{"Batches", testBatches},
		{"Sizes", testSizes},
		{"ReceiveWithoutMemory", testReceiveWithoutMemory},
		{"Send", testSend},
		{"SendZeroLength", testSendZeroLength},
		{"PlainWrite", testPlainWrite},
		{"Inline", testInline},
		{"InlineTooLong", testInlineTooLong},
		{"Gather", testGather},
		{"GatherInline", testGatherInline},
		{"GatherFirstRecord", testGatherFirstRecord},
		{"GatherRefused", testGatherRefused},
		{"GatherNotAskedFor", testGatherNotAskedFor},
		{"GatherAccess", testGatherAccess},
		{"GatherInvalidation", testGatherInvalidation},
		{"GatherTooLong", testGatherTooLong},
		{"GatherQueueFull", testGatherQueueFull},
		{"GatherFrames", testGatherFrames},
		{"GatherLoad", testGatherLoad},
		{"MaxSGE", testMaxSGE},
		{"BothDirections", testBothDirections},
		{"SharedCQ", testSharedCQ},
		{"Concurrency", testConcurrency},
		{"SelectiveSignalling", testSelectiveSignalling},
		{"SendQueueFull", testSendQueueFull},
		{"ReceiveQueueFull", testReceiveQueueFull},
		{"BadOpcode", testBadOpcode},
		{"ReceiverNotReady", testReceiverNotReady},
		{"ReceiverNotReadyGivesUp", testReceiverNotReadyGivesUp},
		{"RemoteAccess", testRemoteAccess},
		{"ZeroLengthNeedsNoKey", testZeroLengthNeedsNoKey},
		{"LocalAccess", testLocalAccess},
		{"ReceiveAccess", testReceiveAccess},
		{"SendTooLong", testSendTooLong},
		{"FailFlushes", testFailFlushes},
		{"FailFlushesWaiting", testFailFlushesWaiting},
		{"Failed", testFailed},
		{"PeerDeath", testPeerDeath},
		{"PeerFailed", testPeerFailed},
		{"EventOnce", testEventOnce},
		{"EventNotForQueued", testEventNotForQueued},
		{"EventSolicited", testEventSolicited},
		{"EventFailure", testEventFailure},
		{"EventFlush", testEventFlush},
		{"EventFD", testEventFD},
		{"Moderation", testModeration},
		{"WaitContext", testWaitContext},
		{"WaitWakes", testWaitWakes},
		{"WaitClosed", testWaitClosed},
		{"Window", testWindow},
		{"WindowStaleKey", testWindowStaleKey},
		{"WindowNextKey", testWindowNextKey},
		{"WindowUnbound", testWindowUnbound},
		{"WindowOfOtherQP", testWindowOfOtherQP},
		{"WindowBounds", testWindowBounds},
		{"WindowInvalidatedByPeer", testWindowInvalidatedByPeer},
		{"WindowMisuse", testWindowMisuse},
		{"WindowHoldsRegion", testWindowHoldsRegion},
		{"Unreliable", testUnreliable},
		{"UnreliableDrops", testUnreliableDrops},
		{"Marks", testMarks},
		{"ConnectErrors", testConnectErrors},
		{"SmallMTU", testSmallMTU},
		{"BadArguments", testBadArguments},
		{"CloseOrder", testCloseOrder},
		{"UseAfterClose", testUseAfterClose},
		{"CloseWhileBusy", testCloseWhileBusy},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t)
			p.Traits = p.Traits.withDefaults()
			p.Scale = max(p.Scale, 1)
			if p.Patience == 0 {
				p.Patience = 20 * time.Second
			}
			c.f(newRig(t, p))
		})
	}
}
