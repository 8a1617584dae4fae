// Package identity has what a side of a session shows its peers, and which peers it trusts: keys,
// certificates, lists and authorities. It knows no connection. It reads files, and its other
// functions depend only on their arguments; the time of a verdict is one of these.
//
// # Files
//
// References between files run down this list:
//
//	problems                   what peers will find wrong
//	credentials                what a side shows, and whom it trusts
//	trust                      the verdict on a peer
//	key, foreignkey            private keys, and files with others
//	untrusted                  errors about keys that are not trusted
//	purpose                    purposes, names and terms of certificates
//	entry                      a name and a fingerprint in a list
//	fingerprint
package identity
