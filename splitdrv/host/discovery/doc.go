// Package discovery lists the I/O units of a host, in order of preference: those with
// configured addresses, and those in SRV records of DNS (RFC 2782).
//
// A Directory has the list, and queries each name again when the time to live of its records
// is over. Resolver queries the servers of resolv.conf(5). Order sorts the records.
//
// The answers of DNS are not trusted: they only say where to connect, and package session
// authenticates the I/O unit there. Only an answer with I/O units replaces an earlier one;
// an error, or an answer without I/O units, does not. The last answer is also kept for the
// next process, which uses it until it gets one.
package discovery
