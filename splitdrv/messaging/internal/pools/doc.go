// Package pools carries out the life of pools, whose steps bufpool.Pools determines: memory,
// registration, messages about pools, and more of them where a sender lacks credits.
//
//	config.go   Config: the size of a pool; Options: the settings of a Manager; limits of both
//	manager.go  Manager: passes the actions of bufpool.Pools to those who carry them out
//	ticks.go    its goroutine and its ticks, which find senders without credits
//	credits.go  Credits: the remote pools that a sender may write to; Channel: what a Manager
//	            shares with a sender and a receiver
//	slots.go    Slots: the send slots of a data channel, which grow
package pools
