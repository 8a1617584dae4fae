package guard

import "github.com/splitnic/splitnic/splitdrv/iounit/guard/guardtest"

type queue = guardtest.Queue

var (
	own, other, card, machine = guardtest.Own, guardtest.Other, guardtest.Card, guardtest.Machine
	wanted, hostWith          = guardtest.Wanted, guardtest.HostWith

	frame, etherFrame, superFrame = guardtest.Frame, guardtest.EtherFrame, guardtest.SuperFrame
)
