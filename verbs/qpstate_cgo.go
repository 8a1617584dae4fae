package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/printable"
)

// QPState is the state of a queue pair: the values of enum ibv_qp_state.
type QPState uint8

// States of a queue pair.
const (
	StateReset QPState = C.IBV_QPS_RESET
	StateInit  QPState = C.IBV_QPS_INIT
	StateRTR   QPState = C.IBV_QPS_RTR
	StateRTS   QPState = C.IBV_QPS_RTS
	StateSQD   QPState = C.IBV_QPS_SQD
	StateSQE   QPState = C.IBV_QPS_SQE
	StateErr   QPState = C.IBV_QPS_ERR
)

var stateNames = [...]string{
	StateReset: "RESET", StateInit: "INIT", StateRTR: "RTR", StateRTS: "RTS",
	StateSQD: "SQD", StateSQE: "SQE", StateErr: "ERR",
}

// String returns the name of the state in the verbs.
func (s QPState) String() string { return printable.Name(stateNames[:], s, "state") }

// QPAttrMask is a set of attributes of ibv_modify_qp(3): the values of enum ibv_qp_attr_mask
// that connected queue pairs use.
type QPAttrMask uint32

// Attributes of ibv_modify_qp(3).
const (
	AttrState       QPAttrMask = C.IBV_QP_STATE
	AttrAccess      QPAttrMask = C.IBV_QP_ACCESS_FLAGS
	AttrPKeyIndex   QPAttrMask = C.IBV_QP_PKEY_INDEX
	AttrPort        QPAttrMask = C.IBV_QP_PORT
	AttrAV          QPAttrMask = C.IBV_QP_AV
	AttrPathMTU     QPAttrMask = C.IBV_QP_PATH_MTU
	AttrTimeout     QPAttrMask = C.IBV_QP_TIMEOUT
	AttrRetryCount  QPAttrMask = C.IBV_QP_RETRY_CNT
	AttrRNRRetry    QPAttrMask = C.IBV_QP_RNR_RETRY
	AttrRQPSN       QPAttrMask = C.IBV_QP_RQ_PSN
	AttrMaxRdAtomic QPAttrMask = C.IBV_QP_MAX_QP_RD_ATOMIC
	AttrMinRNRTimer QPAttrMask = C.IBV_QP_MIN_RNR_TIMER
	AttrSQPSN       QPAttrMask = C.IBV_QP_SQ_PSN
	AttrMaxDestRd   QPAttrMask = C.IBV_QP_MAX_DEST_RD_ATOMIC
	AttrDestQPN     QPAttrMask = C.IBV_QP_DEST_QPN
)

var attrNames = []struct {
	bit  QPAttrMask
	name string
}{
	{AttrState, "STATE"},
	{AttrAccess, "ACCESS_FLAGS"},
	{AttrPKeyIndex, "PKEY_INDEX"},
	{AttrPort, "PORT"},
	{AttrAV, "AV"},
	{AttrPathMTU, "PATH_MTU"},
	{AttrTimeout, "TIMEOUT"},
	{AttrRetryCount, "RETRY_CNT"},
	{AttrRNRRetry, "RNR_RETRY"},
	{AttrRQPSN, "RQ_PSN"},
	{AttrMaxRdAtomic, "MAX_QP_RD_ATOMIC"},
	{AttrMinRNRTimer, "MIN_RNR_TIMER"},
	{AttrSQPSN, "SQ_PSN"},
	{AttrMaxDestRd, "MAX_DEST_RD_ATOMIC"},
	{AttrDestQPN, "DEST_QPN"},
}

// String lists the attributes by their names in the verbs.
func (m QPAttrMask) String() string {
	var s []string
	for _, a := range attrNames {
		if m&a.bit != 0 {
			s = append(s, a.name)
			m &^= a.bit
		}
	}
	if m != 0 {
		s = append(s, fmt.Sprintf("%#x", uint32(m)))
	}
	return strings.Join(s, "|")
}

// transitions has the attributes that a transition sets besides the state: those of all queue pairs,
// and those of RC queue pairs only. It has the part of the state table of ibv_modify_qp(3) that
// connections need. Any state may be followed by RESET and ERR, which take no attributes.
var transitions = map[[2]QPState]struct{ all, rc QPAttrMask }{
	{StateReset, StateInit}: {all: AttrPKeyIndex | AttrPort | AttrAccess},
	{StateInit, StateInit}:  {all: AttrPKeyIndex | AttrPort | AttrAccess},
	{StateInit, StateRTR}:   {AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN, AttrMaxDestRd | AttrMinRNRTimer},
	{StateRTR, StateRTS}:    {AttrSQPSN, AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrMaxRdAtomic},
}

// transitionAttrs returns the attributes of the transition of a queue pair of transport t between two
// states. Without such a transition the error says so: ibv_modify_qp(3) would return a bare EINVAL.
func transitionAttrs(t fabric.Transport, from, to QPState) (QPAttrMask, error) {
	attrs, ok := transitions[[2]QPState{from, to}]
	if !ok && to != StateReset && to != StateErr {
		return 0, fmt.Errorf("no transition from %s to %s: a queue pair goes RESET, INIT, RTR, RTS, and from any state to ERR or RESET", from, to)
	}
	if t == fabric.RC {
		attrs.all |= attrs.rc
	}
	return AttrState | attrs.all, nil
}
