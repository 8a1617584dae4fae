// Package flowmodel tests the flow control of the push-push messaging layer with a model: two
// sides with pools, credits, flushes and transfers in every mode, over a network with random
// delays.
//
// The model runs the code of package bufpool: the ledgers of the elements, and the state machine
// of the pools, from their offer to their end. The model has its own versions of the senders,
// receivers, handlers and pool managers of package messaging, which carry out the actions, without
// threads and memory.
//
// Each side's pools have no window, one window each, or one window around each element. A model of
// the device refuses invalid writes. The model checks that the device does not refuse a write
// that the protocol promises, that no window is invalidated that is not bound, that an element is
// read only when nothing can write to it, and that nothing can be written to a deregistered pool.
//
// A run is a random walk. After each step the model compares the place of each element with the
// ledgers of both sides. It also compares messages sent, receives used and frames received with the
// bounds that the protocol promises. From time to time everything is delivered, and each initiator
// must be able to send again. Some runs close with the end of the session in good order, as
// messaging's Conn.Flush carries it out, from one side or from both: all pools must end, and all
// frames that were sent must have arrived.
//
// The tests also break the rules, one at a time, and expect the model to find this. A rule of the
// state machine is broken at its interface: an action is left out or carried out at another time,
// or an event happens too early. TestMutants of package bufpool makes mistakes in its code, and
// runs this model on them.
//
// SPLITNIC_SEED repeats one run. SPLITNIC_SOAK (a duration) makes many more.
package flowmodel
