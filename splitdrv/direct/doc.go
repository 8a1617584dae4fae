// Package direct makes direct connections of a host to other hosts of its I/O unit. The I/O unit
// permits them and gives each host the addresses of the other; frames then cross the fabric once.
// docs/direct.md describes the life of a connection.
//
// The host passes the messages and the sessions of its I/O units to Connections, and uses its
// Ports in sessions. Package internal/paths divides the queues of the netdevice between the path
// through the I/O unit and direct paths.
//
// # Files
//
// References between files run down this list:
//
//	connections  the connections of a host, and offers
//	link         one connection, from the offer to its end
//	origin       the trust in the I/O unit that has made a connection
//	config       the configuration, and what all connections of a host share
//	status
package direct
