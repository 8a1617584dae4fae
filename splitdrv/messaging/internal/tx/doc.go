// Package tx is the transmit path of a data channel, from a port to the peer.
//
//	sender.go       Sender: the stages of a frame, in order
//	input.go        the frames read from the port
//	transfer.go     the batch of transfers for the next doorbell
//	sendqueue.go    Options: the settings of a sender; its send queue: work requests that have not completed
//	indications.go  transfers that are indicated on the control channel
//	windows.go      the actions of the sender: windows, and the end of pools
//	loans.go        frames that the port lends instead of copying them
//	registrar.go    Registrar: registers the memory from which ports lend frames
package tx
