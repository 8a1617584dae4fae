package conform

import (
	"cmp"
	"slices"
	"time"
)

// Property is a property of every implementation. Each test of a property needs a new Pair.
type Property struct {
	Name string
	try  func(*fixture)
}

// Check tests the property on p and reports to t if p does not have it.
func (p Property) Check(t T, pair Pair) {
	pair.Traits = pair.Traits.withDefaults()
	pair.Scale = max(pair.Scale, 1)
	pair.Patience = cmp.Or(pair.Patience, 20*time.Second)
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
	{"EmptyWrite", testEmptyWrite},
	{"Indication", testIndication},
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
	{"WindowRights", testWindowRights},
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
