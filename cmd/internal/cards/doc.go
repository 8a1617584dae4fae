// Package cards manages the cards of `splitnic agent`. It makes and removes cards on request,
// and restores them in the next process. A card itself uses devices, and is implemented in
// package daemon. In this package it is the interface Card.
//
// Each of these files refers only to the files before it: spec.go has requests for cards;
// namespace.go, network namespaces, which may end before their cards; store.go, the records of
// cards for the next process; entry.go, a card, which is made again when it has failed; set.go,
// all cards, and the removal of those whose namespace has ended; api.go, the API v1 and its client.
package cards
