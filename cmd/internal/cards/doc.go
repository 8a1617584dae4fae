// Package cards is what `splitnic agent` does with many cards: which there are, how they
// are made and removed by requests, and how they come back in the next process. What a
// card is takes devices, and is package daemon's: it is a Card here.
//
// Its files, each of which refers only to those before: spec.go, what a request says;
// namespace.go, network namespaces, which may go before their cards; store.go, where cards are
// noted for the next process; entry.go, a card that is kept going; set.go, all of them;
// collect.go, those that nobody needs any more; api.go, the API v1, and client.go, who asks.
package cards
