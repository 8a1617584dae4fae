package hostiletest

import "slices"

// Attacks returns the attacks that need nothing of a session but its queue pairs.
func Attacks() []Attack {
	return slices.Concat(formOfControl(), formOfData(), poolsAndUpdates(), flushes(), requests(), writes(), indications(),
		sequences(), packs(), devices(), tolerated())
}
