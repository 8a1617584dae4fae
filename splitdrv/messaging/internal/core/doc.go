// Package core has what the parts of a Conn share.
//
//	session.go   Session: the device, the goroutines, the end of a session, and its path MTU
//	dataqp.go    DataQP: the queue pair of a data channel with its completion queues
//	queue.go     Queue: how goroutines pass work to a worker, and what they pass
//	port.go      Port: a queue of a netdevice
//	counters.go  the counters of a data channel
//	errors.go    the rules that a peer can break, and the errors of work requests
package core
