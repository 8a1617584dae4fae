// Package cq has the completion-queue handlers: the settings of the workers of the channels of a
// session, their placement on processors, their budgets, and how long they poll before they sleep.
//
//	handler.go       Handler and Handling: settings, assignments, and what is wrong with them; nice values
//	handlers.go      Handlers: the handlers and workers of a session
//	handlerstats.go  their counters
//	worker.go        Worker: the part of one goroutine
//	polling.go       how long a worker polls an empty queue; Notification: the events of a queue
package cq
