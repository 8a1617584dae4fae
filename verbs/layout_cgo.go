package verbs

// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
)

// The compiler checks that C and Go agree on layouts and constants: each line below indexes
// an array of one element with a difference, which must be zero.

type one = [1]struct{}

// Records that are passed through cgo.
var (
	_ = one{}[unsafe.Sizeof(fabric.SendWR{})-C.sizeof_struct_snv_send_wr]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.ID)-unsafe.Offsetof(C.struct_snv_send_wr{}.id)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.Addr)-unsafe.Offsetof(C.struct_snv_send_wr{}.addr)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.RemoteAddr)-unsafe.Offsetof(C.struct_snv_send_wr{}.remote_addr)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.Len)-unsafe.Offsetof(C.struct_snv_send_wr{}.len)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.LKey)-unsafe.Offsetof(C.struct_snv_send_wr{}.lkey)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.RKey)-unsafe.Offsetof(C.struct_snv_send_wr{}.rkey)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.Imm)-unsafe.Offsetof(C.struct_snv_send_wr{}.imm)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.Op)-unsafe.Offsetof(C.struct_snv_send_wr{}.op)]
	_ = one{}[unsafe.Offsetof(fabric.SendWR{}.Flags)-unsafe.Offsetof(C.struct_snv_send_wr{}.flags)]

	_ = one{}[unsafe.Sizeof(fabric.RecvWR{})-C.sizeof_struct_snv_recv_wr]
	_ = one{}[unsafe.Offsetof(fabric.RecvWR{}.ID)-unsafe.Offsetof(C.struct_snv_recv_wr{}.id)]
	_ = one{}[unsafe.Offsetof(fabric.RecvWR{}.Addr)-unsafe.Offsetof(C.struct_snv_recv_wr{}.addr)]
	_ = one{}[unsafe.Offsetof(fabric.RecvWR{}.Len)-unsafe.Offsetof(C.struct_snv_recv_wr{}.len)]
	_ = one{}[unsafe.Offsetof(fabric.RecvWR{}.LKey)-unsafe.Offsetof(C.struct_snv_recv_wr{}.lkey)]

	_ = one{}[unsafe.Sizeof(fabric.Completion{})-C.sizeof_struct_snv_wc]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.ID)-unsafe.Offsetof(C.struct_snv_wc{}.id)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.Status)-unsafe.Offsetof(C.struct_snv_wc{}.status)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.VendorErr)-unsafe.Offsetof(C.struct_snv_wc{}.vendor_err)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.QPN)-unsafe.Offsetof(C.struct_snv_wc{}.qpn)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.Len)-unsafe.Offsetof(C.struct_snv_wc{}.len)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.Imm)-unsafe.Offsetof(C.struct_snv_wc{}.imm)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.InvKey)-unsafe.Offsetof(C.struct_snv_wc{}.inv_key)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.Op)-unsafe.Offsetof(C.struct_snv_wc{}.op)]
	_ = one{}[unsafe.Offsetof(fabric.Completion{}.Flags)-unsafe.Offsetof(C.struct_snv_wc{}.flags)]
)

// Constants of the shim.
var (
	_ = one{}[fabric.OpSend-C.SNV_OP_SEND]
	_ = one{}[fabric.OpSendInv-C.SNV_OP_SEND_INV]
	_ = one{}[fabric.OpWrite-C.SNV_OP_WRITE]
	_ = one{}[fabric.OpWriteImm-C.SNV_OP_WRITE_IMM]
	_ = one{}[fabric.OpLocalInv-C.SNV_OP_LOCAL_INV]
	_ = one{}[fabric.OpBind-C.SNV_OP_BIND]
	_ = one{}[fabric.OpRead-C.SNV_OP_READ]
	_ = one{}[fabric.OpSendImm-C.SNV_OP_SEND_IMM]
	_ = one{}[fabric.OpRecv-C.SNV_OP_RECV]
	_ = one{}[fabric.OpRecvWriteImm-C.SNV_OP_RECV_WRITE_IMM]
	_ = one{}[fabric.Signaled-C.SNV_SIGNALED]
	_ = one{}[fabric.Solicited-C.SNV_SOLICITED]
	_ = one{}[fabric.Inline-C.SNV_INLINE]
	_ = one{}[fabric.Fence-C.SNV_FENCE]
	_ = one{}[fabric.More-C.SNV_MORE]
	_ = one{}[fabric.WithImm-C.SNV_WITH_IMM]
	_ = one{}[fabric.WithInv-C.SNV_WITH_INV]
)

// Enumerations of libibverbs.
var (
	_ = one{}[fabric.StatusSuccess-C.IBV_WC_SUCCESS]
	_ = one{}[fabric.StatusLocLenErr-C.IBV_WC_LOC_LEN_ERR]
	_ = one{}[fabric.StatusLocQPOpErr-C.IBV_WC_LOC_QP_OP_ERR]
	_ = one{}[fabric.StatusLocEECOpErr-C.IBV_WC_LOC_EEC_OP_ERR]
	_ = one{}[fabric.StatusLocProtErr-C.IBV_WC_LOC_PROT_ERR]
	_ = one{}[fabric.StatusWRFlushErr-C.IBV_WC_WR_FLUSH_ERR]
	_ = one{}[fabric.StatusMWBindErr-C.IBV_WC_MW_BIND_ERR]
	_ = one{}[fabric.StatusBadRespErr-C.IBV_WC_BAD_RESP_ERR]
	_ = one{}[fabric.StatusLocAccessErr-C.IBV_WC_LOC_ACCESS_ERR]
	_ = one{}[fabric.StatusRemInvReqErr-C.IBV_WC_REM_INV_REQ_ERR]
	_ = one{}[fabric.StatusRemAccessErr-C.IBV_WC_REM_ACCESS_ERR]
	_ = one{}[fabric.StatusRemOpErr-C.IBV_WC_REM_OP_ERR]
	_ = one{}[fabric.StatusRetryExcErr-C.IBV_WC_RETRY_EXC_ERR]
	_ = one{}[fabric.StatusRNRRetryExcErr-C.IBV_WC_RNR_RETRY_EXC_ERR]
	_ = one{}[fabric.StatusLocRDDViolErr-C.IBV_WC_LOC_RDD_VIOL_ERR]
	_ = one{}[fabric.StatusRemInvRDReqErr-C.IBV_WC_REM_INV_RD_REQ_ERR]
	_ = one{}[fabric.StatusRemAbortErr-C.IBV_WC_REM_ABORT_ERR]
	_ = one{}[fabric.StatusInvEECNErr-C.IBV_WC_INV_EECN_ERR]
	_ = one{}[fabric.StatusInvEECStateErr-C.IBV_WC_INV_EEC_STATE_ERR]
	_ = one{}[fabric.StatusFatalErr-C.IBV_WC_FATAL_ERR]
	_ = one{}[fabric.StatusRespTimeoutErr-C.IBV_WC_RESP_TIMEOUT_ERR]
	_ = one{}[fabric.StatusGeneralErr-C.IBV_WC_GENERAL_ERR]

	_ = one{}[LinkUnspecified-C.IBV_LINK_LAYER_UNSPECIFIED]
	_ = one{}[LinkInfiniBand-C.IBV_LINK_LAYER_INFINIBAND]
	_ = one{}[LinkEthernet-C.IBV_LINK_LAYER_ETHERNET]
	_ = one{}[PortActive-C.IBV_PORT_ACTIVE]
	_ = one{}[GIDTypeRoCEv1-C.IBV_GID_TYPE_ROCE_V1]
	_ = one{}[GIDTypeRoCEv2-C.IBV_GID_TYPE_ROCE_V2]
	_ = one{}[fabric.EventCQErr-C.IBV_EVENT_CQ_ERR]
	_ = one{}[fabric.EventDeviceFatal-C.IBV_EVENT_DEVICE_FATAL]
	_ = one{}[fabric.EventPortErr-C.IBV_EVENT_PORT_ERR]
	_ = one{}[fabric.EventQPLastWQEReached-C.IBV_EVENT_QP_LAST_WQE_REACHED]
	_ = one{}[fabric.EventGIDChange-C.IBV_EVENT_GID_CHANGE]
	_ = one{}[fabric.EventWQFatal-C.IBV_EVENT_WQ_FATAL]
)
