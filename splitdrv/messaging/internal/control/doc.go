// Package control has the control channel of a session: messages in both directions, configuration
// requests, and the keep-alives by which a silent peer is found.
//
//	channel.go    Channel: the queue pair, and the handler of its completions
//	sends.go      Sends: the send queue, which any goroutine may use; Options: the settings of all
//	requests.go   Requests: the unanswered requests of both sides
//	keepalive.go  Signs: keep-alives, and for how long the peer has been silent
package control
