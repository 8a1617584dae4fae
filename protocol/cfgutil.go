package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/splitnic/splitnic/internal/printable"
)

// CfgType is the type of a CfgUtilRequest. A receiver answers an unknown type with CfgUnsupported.
// An unknown type is not an error of the peer.
type CfgType uint32

// The request types.
const (
	CfgMAC        CfgType = 1  // data: MAC
	CfgMTU        CfgType = 2  // data: MTU
	CfgLinkState  CfgType = 3  // data: LinkState
	CfgKeepAlive  CfgType = 4  // no data
	CfgOffloads   CfgType = 5  // data: Offloads
	CfgFilter     CfgType = 6  // data: ReceiveFilter
	CfgVLAN       CfgType = 7  // data: VLANSet
	CfgStatsRead  CfgType = 8  // no data; data of the reply: Statistics
	CfgStatsClear CfgType = 9  // no data; data of the reply: Statistics before they were cleared
	CfgReset      CfgType = 10 // no data: resets the configuration to that at the beginning of the session
	CfgSent       CfgType = 11 // data: Sent
	CfgBind       CfgType = 12 // data: Proof; only with FeatureBind
	CfgPoolKeys   CfgType = 13 // data: PoolKeys
	CfgArrived    CfgType = 14 // data: MarkerNonce; only between two hosts
	CfgRefusal    CfgType = 15 // data: Subject; data of the reply to a host: Refusal
	CfgPath       CfgType = 16 // no data, zeros up to the path MTU behind it; only with FeaturePathMTU
)

var cfgTypes = [...]string{
	CfgMAC: "MAC", CfgMTU: "MTU", CfgLinkState: "link state", CfgKeepAlive: "keep-alive", CfgOffloads: "offloads",
	CfgFilter: "receive filter", CfgVLAN: "VLANs", CfgStatsRead: "read statistics", CfgStatsClear: "clear statistics",
	CfgReset: "reset", CfgSent: "sent", CfgBind: "binding", CfgPoolKeys: "pool keys", CfgArrived: "markers have arrived",
	CfgRefusal: "refusal", CfgPath: "path",
}

// String returns the name of the type, or its number.
func (t CfgType) String() string { return printable.Name(cfgTypes[:], t, "request type") }

// CfgStatus is the outcome in a CfgUtilReply.
type CfgStatus uint32

// The statuses. A receiver treats an unknown status as CfgFailed.
const (
	CfgOK          CfgStatus = 0
	CfgUnsupported CfgStatus = 1 // the type is unknown or not available
	CfgInvalid     CfgStatus = 2 // the data does not decode
	CfgDenied      CfgStatus = 3 // the policy of the I/O unit does not allow it
	CfgFailed      CfgStatus = 4 // the request failed
)

var cfgStatuses = [...]string{
	CfgOK: "ok", CfgUnsupported: "unsupported", CfgInvalid: "invalid", CfgDenied: "denied", CfgFailed: "failed",
}

// String describes the status.
func (s CfgStatus) String() string { return printable.Name(cfgStatuses[:], s, "status") }

// PathRequestSize is the size in bytes of a CfgUtilRequest of type CfgPath without the zeros behind it.
const PathRequestSize = cfgRequestSize

const (
	cfgRequestSize = HeaderSize + 8  // type, data size
	cfgReplySize   = HeaderSize + 12 // type, status, data size

	// MaxCfgData is the largest data of a request or reply in bytes.
	MaxCfgData = MaxControlSize - cfgReplySize
)

// CfgUtilRequest sets, reports or reads a configuration value. A request with data sets the value
// (host to I/O unit) or reports it (I/O unit to host). A request without data reads the value in
// force.
type CfgUtilRequest struct {
	TransactionContext uint64
	Type               CfgType
	Data               []byte // decoded: borrows the message's bytes
}

// DecodeCfgUtilRequest decodes b, one whole message. The Decode function of the type decodes the
// data.
func DecodeCfgUtilRequest(b []byte) (CfgUtilRequest, error) {
	transaction, rest, err := body(b, FuncCfgUtilRequest)
	if err != nil {
		return CfgUtilRequest{}, err
	}
	if len(b) < cfgRequestSize {
		return CfgUtilRequest{}, fmt.Errorf("CfgUtilRequest of %d bytes, must be at least %d: %w", len(b), cfgRequestSize,
			ErrShort)
	}
	data, err := cfgData(rest[4:])
	if err != nil {
		return CfgUtilRequest{}, fmt.Errorf("CfgUtilRequest: %w", err)
	}
	return CfgUtilRequest{
		TransactionContext: transaction,
		Type:               CfgType(binary.BigEndian.Uint32(rest)),
		Data:               data,
	}, nil
}

// AppendCfgUtilRequest appends m, with at most MaxCfgData bytes of data.
func AppendCfgUtilRequest(dst []byte, m CfgUtilRequest) []byte {
	dst = appendHeader(dst, FuncCfgUtilRequest, m.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Type))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Data)))
	return append(dst, m.Data...)
}

// CfgUtilReply is the reply to a CfgUtilRequest. It has the transaction context and the type of the
// request. With CfgOK the data is the value in force; otherwise it is empty.
type CfgUtilReply struct {
	TransactionContext uint64
	Type               CfgType
	Status             CfgStatus
	Data               []byte // decoded: borrows the message's bytes
}

// DecodeCfgUtilReply decodes b, one whole message.
func DecodeCfgUtilReply(b []byte) (CfgUtilReply, error) {
	transaction, rest, err := body(b, FuncCfgUtilReply)
	if err != nil {
		return CfgUtilReply{}, err
	}
	if len(b) < cfgReplySize {
		return CfgUtilReply{}, fmt.Errorf("CfgUtilReply of %d bytes, must be at least %d: %w", len(b), cfgReplySize, ErrShort)
	}
	data, err := cfgData(rest[8:])
	if err != nil {
		return CfgUtilReply{}, fmt.Errorf("CfgUtilReply: %w", err)
	}
	return CfgUtilReply{
		TransactionContext: transaction,
		Type:               CfgType(binary.BigEndian.Uint32(rest)),
		Status:             CfgStatus(binary.BigEndian.Uint32(rest[4:])),
		Data:               data,
	}, nil
}

// AppendCfgUtilReply appends m, with at most MaxCfgData bytes of data.
func AppendCfgUtilReply(dst []byte, m CfgUtilReply) []byte {
	dst = appendHeader(dst, FuncCfgUtilReply, m.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Type))
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Status))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Data)))
	return append(dst, m.Data...)
}

// cfgData returns the data in b, which begins with the size of the data. It checks that exactly so
// many bytes follow. A request may not have more data than a reply can have.
func cfgData(b []byte) ([]byte, error) {
	size, data := binary.BigEndian.Uint32(b), b[4:]
	switch {
	case size > MaxCfgData:
		return nil, fmt.Errorf("data of %d bytes, at most %d: %w", size, MaxCfgData, ErrSize)
	case int(size) > len(data):
		return nil, fmt.Errorf("data of %d bytes, %d follow: %w", size, len(data), ErrShort)
	case int(size) < len(data):
		return nil, fmt.Errorf("data of %d bytes, %d follow: %w", size, len(data), ErrTrailing)
	}
	return data, nil
}
