package verbs

import (
	"strings"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

func TestCheckTransition(t *testing.T) {
	const rc, uc = fabric.RC, fabric.UC
	for _, c := range []struct {
		t        fabric.Transport
		from, to QPState
		mask     QPAttrMask
		wrong    string // part of the explanation; empty: valid transition
	}{
		{rc, StateReset, StateInit, AttrState | initAttrs, ""},
		{rc, StateInit, StateRTR, AttrState | rtrAttrs | rtrRC, ""},
		{rc, StateRTR, StateRTS, AttrState | AttrSQPSN | rtsRC, ""},
		{uc, StateInit, StateRTR, AttrState | rtrAttrs, ""},
		{uc, StateRTR, StateRTS, AttrState | AttrSQPSN, ""},
		{rc, StateInit, StateInit, AttrState | AttrAccess, ""},
		{rc, StateRTS, StateRTS, AttrState | AttrAccess | AttrMinRNRTimer, ""},
		{rc, StateRTS, StateErr, AttrState, ""},
		{rc, StateReset, StateErr, AttrState, ""},
		{rc, StateErr, StateReset, AttrState, ""},

		{rc, StateReset, StateRTR, AttrState, "no transition from RESET to RTR"},
		{rc, StateInit, StateRTS, AttrState, "no transition from INIT to RTS"},
		{rc, StateErr, StateRTS, AttrState, "no transition from ERR to RTS"},
		{rc, StateRTS, StateInit, AttrState, "no transition from RTS to INIT"},
		{rc, StateReset, StateInit, initAttrs, "lacks attribute STATE"},
		{rc, StateReset, StateInit, AttrState | initAttrs&^AttrPort, "lacks attribute PORT"},
		{rc, StateInit, StateRTR, AttrState | rtrAttrs, "lacks attribute MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC"},
		{uc, StateInit, StateRTR, AttrState | rtrAttrs | rtrRC, "does not take attribute MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC"},
		{uc, StateRTR, StateRTS, AttrState | AttrSQPSN | AttrTimeout, "does not take attribute TIMEOUT"},
		{uc, StateRTS, StateRTS, AttrState | AttrMinRNRTimer, "does not take attribute MIN_RNR_TIMER"},
		{rc, StateRTS, StateErr, AttrState | AttrAV, "does not take attribute AV"},
	} {
		err := checkTransition(c.t, c.from, c.to, c.mask)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%v to %v with %v: %v, want %q", c.from, c.to, c.mask, err, c.wrong)
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
