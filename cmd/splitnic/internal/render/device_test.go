package render

import (
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/device"
)

// TestDevice expects what is unusual about a device in its status, and nothing else.
func TestDevice(t *testing.T) {
	events := map[string]uint64{"port-err": 2, "device-fatal": 1}
	for _, tc := range []struct {
		state        *device.Status
		shown, never []string
	}{
		{nil, []string{"rxe0"}, []string{"GONE", "DOWN", "events"}},
		{&device.Status{}, []string{"rxe0"}, []string{"GONE", "DOWN", "events"}},
		{&device.Status{DownPorts: []int{2}}, []string{"port 2\tDOWN"}, []string{"GONE"}},
		{&device.Status{Gone: true, Since: time.Now(), Error: "no such device"}, []string{"GONE", "no such device"},
			[]string{"DOWN"}},
		{&device.Status{Events: events, LastEvent: "device failed"}, []string{"1 device-fatal, 2 port-err", "device failed"},
			[]string{"GONE", "DOWN"}},
	} {
		var b strings.Builder
		printDevice(&b, "rxe0", tc.state)
		for _, s := range tc.shown {
			if !strings.Contains(b.String(), s) {
				t.Errorf("%+v: no %q in %q", tc.state, s, b.String())
			}
		}
		for _, s := range tc.never {
			if strings.Contains(b.String(), s) {
				t.Errorf("%+v: %q in %q", tc.state, s, b.String())
			}
		}
	}
}
