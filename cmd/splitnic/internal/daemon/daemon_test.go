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
	"github.com/splitnic/splitnic/internal/testenv"
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

// TestOpenKeyLog opens a key log only if the environment names one.
func TestOpenKeyLog(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	t.Setenv("SSLKEYLOGFILE", "")
	var c Common
	if err := c.openKeyLog(log); err != nil || c.KeyLog != nil {
		t.Errorf("without a file: %v, %v", c.KeyLog, err)
	}
	file := filepath.Join(t.TempDir(), "keys.log")
	t.Setenv("SSLKEYLOGFILE", file)
	if err := c.openKeyLog(log); err != nil || c.KeyLog == nil {
		t.Errorf("%v, %v", c.KeyLog, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	t.Setenv("SSLKEYLOGFILE", filepath.Join(file, "below"))
	err := c.openKeyLog(log)
	if err == nil {
		t.Fatal("a file that cannot be there was opened")
	}
	testenv.Ended(t, exit.Status(err), err.Error())
}

// TestServeStatusStops serves the status and metrics, stops, and expects the socket to be
// removed.
func TestServeStatusStops(t *testing.T) {
	c := Common{StatusSocket: filepath.Join(t.TempDir(), "s"), Metrics: "127.0.0.1:0"}
	stop, err := c.serve("test", nil, func() any { return 1 }, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := os.Stat(c.StatusSocket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
