package session

import "slices"

// Offers reports whether the host can use an optional part of the protocol.
func (h *Hello) Offers(feature string) bool { return slices.Contains(h.Features, feature) }

// Grants reports whether an optional part of the protocol is used.
func (w *Welcome) Grants(feature string) bool { return slices.Contains(w.Features, feature) }
