package protocol

// MarkerNonce identifies the markers of one direction of a direct connection. It is the data of
// CfgArrived, 16 bytes. docs/protocol.md §9 describes markers.
type MarkerNonce [16]byte

// DecodeMarkerNonce decodes the data of CfgArrived.
func DecodeMarkerNonce(data []byte) (MarkerNonce, error) {
	if err := dataSize(CfgArrived, data, len(MarkerNonce{})); err != nil {
		return MarkerNonce{}, err
	}
	return MarkerNonce(data), nil
}

// AppendMarkerNonce appends the data of CfgArrived.
func AppendMarkerNonce(dst []byte, n MarkerNonce) []byte { return append(dst, n[:]...) }
