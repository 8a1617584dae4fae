// Package flowmodel is a model of the flow control of the push-push messaging
// layer, for its test: two sides with pools, credits, flushes and transfers in
// every mode, over a network that delays everything as it likes.
//
// What it walks is package bufpool: the books of the elements, and the state machine
// of the pools, from their offer to their end. What carries that out, the senders,
// receivers, handlers and pool managers of package messaging, it has without their
// threads and their memory.
//
// Each side's pools are behind nothing, behind a window each, or behind a window
// around each element; a device refuses what it should, and the model looks that
// it does not refuse what the protocol promises, that nothing is invalidated that
// is not bound, that an element is looked at only when nobody can write to it,
// and that nothing can be written to a pool that is gone.
//
// A run is a random walk. After each step the model compares where every
// element is with what the ledgers of both sides say, and each message that is
// sent, receive that is used up and frame that arrives with the bounds that the
// protocol promises. In the end everything is delivered, and each initiator
// must be able to send again.
//
// The tests also break the rules, one at a time, and expect the model to notice. A
// rule of the state machine is broken on the way from or to it: an action is left out
// or comes at another time, an event comes too early. Mistakes in the code of package
// bufpool itself are made by its TestMutants, which runs this model on them.
//
// SPLITNIC_SEED replays one run, SPLITNIC_SOAK (a duration) makes many more.
package flowmodel
