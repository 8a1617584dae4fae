package vhostuser

import (
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/vnet"
)

// features has feature bits of a virtio device, with the numbers of the virtio specification, and of
// vhost-user.
type features uint64

const (
	featCsum       features = 1 << 0 // the device completes checksums
	featGuestCsum  features = 1 << 1 // the driver does not need complete checksums
	featMTU        features = 1 << 3
	featGuestTSO4  features = 1 << 7
	featGuestTSO6  features = 1 << 8
	featGuestECN   features = 1 << 9
	featHostTSO4   features = 1 << 11
	featHostTSO6   features = 1 << 12
	featHostECN    features = 1 << 13
	featMrgRxbuf   features = 1 << 15
	featStatus     features = 1 << 16
	featMQ         features = 1 << 22
	featLogAll     features = 1 << 26 // VHOST_F_LOG_ALL: a log of written pages; not offered
	featIndirect   features = 1 << 28
	featEventIdx   features = 1 << 29
	featProtocol   features = 1 << 30 // VHOST_USER_F_PROTOCOL_FEATURES
	featVersion1   features = 1 << 32
	featPacked     features = 1 << 34
	featGuestUSO4  features = 1 << 54
	featGuestUSO6  features = 1 << 55
	featHostUSO    features = 1 << 56
	featuresAlways          = featMTU | featMrgRxbuf | featStatus | featIndirect | featEventIdx | featProtocol |
		featVersion1 | featPacked
)

// featureNames has the names of features in the status.
var featureNames = []struct {
	bit  features
	name string
}{
	{featVersion1, "version-1"}, {featPacked, "packed"}, {featMrgRxbuf, "mrg-rxbuf"}, {featIndirect, "indirect"},
	{featEventIdx, "event-idx"}, {featMQ, "mq"}, {featCsum, "csum"}, {featGuestCsum, "guest-csum"},
	{featHostTSO4, "host-tso4"}, {featHostTSO6, "host-tso6"}, {featHostECN, "host-ecn"}, {featHostUSO, "host-uso"},
	{featGuestTSO4, "guest-tso4"}, {featGuestTSO6, "guest-tso6"}, {featGuestECN, "guest-ecn"},
	{featGuestUSO4, "guest-uso4"}, {featGuestUSO6, "guest-uso6"},
}

func (f features) has(bits features) bool { return f&bits == bits }

// Names returns the names of the features for the status.
func (f features) Names() []string {
	names := []string{}
	for _, n := range featureNames {
		if f.has(n.bit) {
			names = append(names, n.name)
		}
	}
	return names
}

// offloads has the features of each offload: of the device, and of the driver when it receives.
var offloads = []struct {
	offload     vnet.Offloads
	host, guest features
}{
	{vnet.CSUM, featCsum, featGuestCsum}, {vnet.TSO4, featHostTSO4, featGuestTSO4},
	{vnet.TSO6, featHostTSO6, featGuestTSO6}, {vnet.TSOECN, featHostECN, featGuestECN},
	{vnet.USO, featHostUSO, featGuestUSO4 | featGuestUSO6},
}

// offered returns the features of a device with these offloads of the I/O unit, and with that number
// of pairs of rings.
func offered(o vnet.Offloads, pairs int) features {
	f := featuresAlways
	for _, each := range offloads {
		if o&each.offload != 0 {
			f |= each.host | each.guest
		}
	}
	if pairs > 1 {
		f |= featMQ
	}
	return f
}

// check returns an error if a front end must not acknowledge f after offer was offered.
func (f features) check(offer features) error {
	switch {
	case f&featLogAll != 0:
		return fmt.Errorf("%w: a log of the pages written, as for live migration, is not offered", ErrFrontEnd)
	case f&^offer != 0:
		return fmt.Errorf("%w: features %#x were not offered", ErrFrontEnd, uint64(f&^offer))
	case f&(featPacked) != 0 && f&featVersion1 == 0:
		return fmt.Errorf("%w: a packed ring without VIRTIO_F_VERSION_1", ErrFrontEnd)
	}
	return nil
}

// header returns the size of the virtio_net_hdr of a frame in bytes.
func (f features) header() int {
	if f&(featVersion1|featMrgRxbuf) != 0 {
		return 12
	}
	return 10
}

// takes returns the offloads that the driver supports when it receives.
func (f features) takes() (o vnet.Offloads) {
	for _, each := range offloads {
		if f.has(each.guest) {
			o |= each.offload
		}
	}
	return o.Closure()
}

// protocolFeatures has features of the vhost-user protocol.
type protocolFeatures uint64

const (
	protoMQ             protocolFeatures = 1 << 0
	protoReplyAck       protocolFeatures = 1 << 3
	protoMTU            protocolFeatures = 1 << 4
	protoReset          protocolFeatures = 1 << 13
	protoMemSlots       protocolFeatures = 1 << 15
	protoStatus         protocolFeatures = 1 << 16
	protoFeaturesAlways                  = protoMQ | protoReplyAck | protoMTU | protoReset | protoMemSlots | protoStatus
)

func (f features) String() string { return strings.Join(f.Names(), ",") }
