// Package conform has the properties that every implementation of package fabric
// has: what the contract promises, as functions that try it on a pair of devices.
//
// [Properties] are all of them. fabrictest.Run makes a test of each; [Examine]
// tries those that may be tried on a user's adapter, and tells what it found. The
// package is part of the product and does not import package testing.
package conform

import (
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// T is what a property reports to. A *testing.T is one. Fatal, Fatalf, Skip and
// Skipf do not return.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
	Skipf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// Pair is what a property is tried on: two devices that reach each other. They
// may be the same device, opened twice. Whoever makes the pair closes them,
// afterwards; the property may have closed them before.
type Pair struct {
	A, B   fabric.Device
	Traits Traits

	// Timing is for every connection that a property does not need special timing
	// for; zero fields have their defaults.
	Timing fabric.Timing
	// Scale divides the number of messages of the long ones; 0 means 1.
	Scale int
	// Patience is how long one step may take before the property fails; 0 means
	// 20 seconds. A pass never takes that long.
	Patience time.Duration
	// RNR, if not nil, returns how often a message found no receive posted.
	RNR func() uint64
}

// Property is something that every implementation does. A Pair is good for one.
type Property struct {
	Name string
	try  func(*fixture)
}

// Check tries the property on p and tells t if p does not have it.
func (p Property) Check(t T, pair Pair) {
	pair.Traits = pair.Traits.withDefaults()
	pair.Scale = max(pair.Scale, 1)
	if pair.Patience == 0 {
		pair.Patience = 20 * time.Second
	}
	p.try(newFixture(t, pair))
}

// Properties returns all properties.
func Properties() []Property { return slices.Clone(properties) }

var properties = []Property{
	{"Order", testOrder},
	{"Batches", testBatches},
	{"Sizes", testSizes},
	{"ReceiveWithoutMemory", testReceiveWithoutMemory},
	{"Send", testSend},
	{"SendZeroLength", testSendZeroLength},
	{"SendImmediate", testSendImmediate},
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
	{"Read", testRead},
	{"ReadDepth", testReadDepth},
	{"ReadFence", testReadFence},
	{"ReadAccess", testReadAccess},
	{"ReadLocalAccess", testReadLocalAccess},
	{"ReadNotAllowed", testReadNotAllowed},
	{"ReadRefused", testReadRefused},
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
	{"RefusedFailed", testRefusedFailed},
	{"EventOnce", testEventOnce},
	{"EventNotForQueued", testEventNotForQueued},
	{"EventSolicited", testEventSolicited},
	{"EventFailure", testEventFailure},
	{"EventFlush", testEventFlush},
	{"EventFD", testEventFD},
	{"EventVectors", testEventVectors},
	{"Moderation", testModeration},
	{"WaitContext", testWaitContext},
	{"WaitWakes", testWaitWakes},
	{"WaitClosed", testWaitClosed},
	{"Window", testWindow},
	{"WindowBindSend", testWindowBindSend},
	{"WindowBindSendFails", testWindowBindSendFails},
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
}
