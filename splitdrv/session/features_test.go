package session

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// TestLatencyFeature decodes welcomes with a latency channel. They must be accepted only if the
// host has offered the feature, and the channel is not the only data channel.
func TestLatencyFeature(t *testing.T) {
	for _, tt := range []struct {
		offered bool
		queues  int
		ok      bool
	}{{true, 2, true}, {true, 1, false}, {false, 2, false}} {
		hello := testHello()
		hello.Queues, hello.Features = 2, []string{"other"}
		if tt.offered {
			hello.Features = append(hello.Features, protocol.FeatureLatencyQueue)
		}
		if hello.Offers(protocol.FeatureLatencyQueue) != tt.offered || !hello.Offers("other") || hello.Offers("") {
			t.Errorf("%q offer something else", hello.Features)
		}
		w := testWelcome()
		w.Version, w.Offloads, w.Queues = 1, hello.Offloads, tt.queues
		w.Channels = testChannels(100, 1+tt.queues)
		w.Features = []string{protocol.FeatureLatencyQueue}
		got, err := decodeWelcome([]byte(changed(t, welcomeMessage{typeWelcome, w}, nil)), &hello)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("offered %t, %d queues: %v", tt.offered, tt.queues, err)
		}
		if tt.ok && (!got.Grants(protocol.FeatureLatencyQueue) || got.Grants("other")) {
			t.Errorf("%q grant something else", got.Features)
		}
	}
}
