package verbs

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

const max24 = 1<<24 - 1

// ownAddress returns the address of a port for the peer, without queue pair number and PSN.
// RoCE addresses by GID, as do ports that need a global route header. On InfiniBand the LID
// suffices within a subnet. If a GID was configured (asked), packets carry it in a global route
// header as well, and can cross routers.
func ownAddress(port PortAttr, gid GIDEntry, asked bool) fabric.Address {
	a := fabric.Address{LID: port.LID, MTU: port.ActiveMTU}
	if port.needsGID() || asked {
		a.GID = gid.GID
	}
	return a
}

// global reports whether the packets between two addresses carry GIDs. Both ends must decide
// alike: a queue pair drops a packet with an unexpected global route header, and a packet
// without an expected one.
func global(own, remote fabric.Address) bool {
	return own.GID != [16]byte{} && remote.GID != [16]byte{}
}

// checkAddress returns an error that names the part of a peer's address that is invalid on a
// port p. The address comes from the peer.
func checkAddress(a fabric.Address, p PortAttr) error {
	switch {
	case a.QPN < 2 || a.QPN > max24:
		return fmt.Errorf("remote queue pair number %#x is not one of an RC or UC queue pair (24 bits, from 2 on)", a.QPN)
	case a.PSN > max24:
		return fmt.Errorf("remote packet sequence number %#x has more than 24 bits", a.PSN)
	case mtuEnum(a.MTU) == 0:
		return fmt.Errorf("remote MTU %d is below 256", a.MTU)
	case a.GID == [16]byte{} && p.LinkLayer == LinkEthernet:
		return errors.New("remote GID is missing: RoCE addresses by GID")
	case a.GID == [16]byte{} && p.NeedsGRH:
		return errors.New("remote GID is missing: this InfiniBand port sends no packet without a GID; set --gid-index at the peer")
	case a.GID == [16]byte{} && a.LID == 0:
		return errors.New("remote GID and LID are missing")
	}
	return nil
}

// checkTiming returns an error that names the first timer that ibv_modify_qp(3) would reject.
// It is called before the first transition, so that the queue pair keeps its state on failure.
func checkTiming(t fabric.Timing) error {
	for _, f := range []struct {
		name       string
		value, max uint8
	}{
		{"timeout", t.Timeout, 31},
		{"retry count", t.RetryCount, 7},
		{"receiver-not-ready retry count", t.RNRRetry, 7},
		{"receiver-not-ready timer", t.MinRNRTimer, 31},
	} {
		if f.value > f.max {
			return fmt.Errorf("%s %d is over %d", f.name, f.value, f.max)
		}
	}
	return nil
}
