// Package flowmodel is a model of the flow control of the push-push messaging
// layer, for its test: two sides with pools, credits, flushes and transfers in
// every mode, over a network that delays everything as it likes. It has the
// rules of package messaging without its threads and its memory, and the real
// ledgers of package bufpool.
//
// A run is a random walk. After each step the model compares where every
// element is with what the ledgers of both sides say, and each message that is
// sent, receive that is used up and frame that arrives with the bounds that the
// protocol promises. In the end everything is delivered, and each initiator
// must be able to send again.
//
// The tests also break the rules, one at a time, and expect the model to notice.
//
// SPLITNIC_SEED replays one run, SPLITNIC_SOAK (a duration) makes many more.
package flowmodel
