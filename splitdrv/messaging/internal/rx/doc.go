// Package rx is the receive path of a data channel, from the peer to a port.
//
//	options.go    Options: the settings of a receiver
//	receiver.go   Receiver: the stages of a frame, in order
//	delivery.go   the frames on their way from the elements to the port
//	others.go     what other goroutines call, and the worker of Config.Poll
//	opening.go    sealed transfers, opened in memory that no device writes
//	adopted.go    the local pools that the receiver has adopted, and elements of one-touch pools whose
//	              windows are being invalidated
//	numbering.go  the numbering of messages in the send modes
package rx
