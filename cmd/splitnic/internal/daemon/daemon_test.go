package daemon

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

func TestExplainListen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = net.Listen("tcp", ln.Addr().String())
	if got := exit.Status(ExplainListen("--metrics", err)); got != exit.AddressInUse {
		t.Errorf("status %d of %v", got, err)
	}
}

// TestServeStatusStops serves the status and metrics, stops, and expects the socket to be
// removed.
func TestServeStatusStops(t *testing.T) {
	c := Common{StatusSocket: filepath.Join(t.TempDir(), "s"), Metrics: "127.0.0.1:0"}
	stop, err := c.serve("test", func() any { return 1 }, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := os.Stat(c.StatusSocket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
