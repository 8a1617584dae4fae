package render

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

func TestPrintCaptures(t *testing.T) {
	all := []capture.Status{
		{Since: time.Now(), Frames: 7, Dropped: 3},
		{Since: time.Now(), Paths: "direct *", Filter: "icmp"},
	}
	for _, s := range []any{
		host.Status{Role: "host", Captures: all}, iounit.Status{Role: "iounit", Captures: all},
	} {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		text := details(t, raw)
		for _, want := range []string{"4 frames for 0s, 3 dropped", `0 frames of paths "direct *" by filter "icmp" for 0s, 0 dropped`} {
			if !strings.Contains(text, want) {
				t.Errorf("the status does not say %q:\n%s", want, text)
			}
		}
	}
}
