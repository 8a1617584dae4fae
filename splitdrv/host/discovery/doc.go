// Package discovery says which I/O units a host has, and in which order it prefers them:
// those whose addresses are configured, and those that SRV records of DNS name (RFC 2782).
//
// A Directory keeps the list, and has each name asked for again as its records' time to
// live says. Resolver asks the servers of resolv.conf(5), Order puts the records in order.
//
// What DNS says is not trusted: it only says where to look. Package session decides whether
// who answers there is an I/O unit to talk to. A failure of DNS changes nothing about what
// was known: an answer replaces an answer, and an error, or an answer without I/O units,
// does not. The last answer is kept for the next process, for as long as that gets none.
package discovery
