package iounit

import (
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard/guardtest"
)

type queue = guardtest.Queue

var (
	own, other, card, machine = guardtest.Own, guardtest.Other, guardtest.Card, guardtest.Machine
	wanted, broadcast         = guardtest.Wanted, guard.Broadcast

	hostWith, frame, etherFrame = guardtest.HostWith, guardtest.Frame, guardtest.EtherFrame
	superFrame                  = guardtest.SuperFrame
)
