// Package device listens to an RDMA device. It has one reader of the asynchronous events of the
// device, for all sessions: an event ends the sessions that it concerns, with its reason. A device
// that goes away, because its card is unplugged or reset or its driver is reloaded, ends all of
// its sessions. It is opened again by its name when it is back, and Device is usable again.
package device
