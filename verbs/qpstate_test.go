//go:build cgo

package verbs

import (
	"strings"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

func TestTransitionAttrs(t *testing.T) {
	const rc, uc = fabric.RC, fabric.UC
	const toInit = AttrState | AttrPKeyIndex | AttrPort | AttrAccess
	const toRTR = AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	const toRTS = AttrState | AttrSQPSN
	for _, c := range []struct {
		t        fabric.Transport
		from, to QPState
		mask     QPAttrMask
		wrong    string // part of the explanation; empty: valid transition
	}{
		{rc, StateReset, StateInit, toInit, ""},
		{uc, StateReset, StateInit, toInit, ""},
		{rc, StateInit, StateInit, toInit, ""},
		{rc, StateInit, StateRTR, toRTR | AttrMaxDestRd | AttrMinRNRTimer, ""},
		{rc, StateRTR, StateRTS, toRTS | AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrMaxRdAtomic, ""},
		{uc, StateInit, StateRTR, toRTR, ""},
		{uc, StateRTR, StateRTS, toRTS, ""},
		{rc, StateRTS, StateErr, AttrState, ""},
		{rc, StateReset, StateErr, AttrState, ""},
		{rc, StateErr, StateReset, AttrState, ""},

		{rc, StateReset, StateRTR, 0, "no transition from RESET to RTR"},
		{rc, StateInit, StateRTS, 0, "no transition from INIT to RTS"},
		{rc, StateErr, StateRTS, 0, "no transition from ERR to RTS"},
		{rc, StateRTS, StateInit, 0, "no transition from RTS to INIT"},
		{rc, StateRTS, StateRTS, 0, "no transition from RTS to RTS"},
	} {
		mask, err := transitionAttrs(c.t, c.from, c.to)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if mask != c.mask || (c.wrong == "") != (err == nil) || !strings.Contains(said, c.wrong) {
			t.Errorf("%v to %v: %v, %v, want %v, %q", c.from, c.to, mask, err, c.mask, c.wrong)
		}
	}
}

func TestStateStrings(t *testing.T) {
	for got, want := range map[string]string{
		StateErr.String():                       "ERR",
		QPState(9).String():                     "state 9",
		(AttrState | AttrDestQPN).String():      "STATE|DEST_QPN",
		(AttrPort | QPAttrMask(1<<18)).String(): "PORT|0x40000",
		QPAttrMask(0).String():                  "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
