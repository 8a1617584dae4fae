package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNeedDirectories expects missing directories to be errors with their flags, except the
// program's own ones.
func TestNeedDirectories(t *testing.T) {
	there := t.TempDir()
	file := filepath.Join(there, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(there, "a", "b")
	for _, tc := range []struct {
		socket, state string
		want          []string // flags
	}{
		{"", "", nil},
		{"", StateDir, nil},
		{"/run/splitnic/none/x.sock", StateDir + "/none", nil},
		{there + "/x.sock", there, nil},
		{missing + "/x.sock", there, []string{"--status-socket"}},
		{"", missing, []string{"--state"}},
		{missing + "/x.sock", missing, []string{"--status-socket", "--state"}},
		{"/run/splitnic-none/x.sock", StateDir + "/../none-there", []string{"--status-socket", "--state"}},
		{file + "/x.sock", file, nil}, // found later
	} {
		c := Host{State: tc.state, Common: Common{StatusSocket: tc.socket}}
		err := c.needDirectories()
		if len(tc.want) == 0 {
			if err != nil {
				t.Errorf("%q, %q: %v", tc.socket, tc.state, err)
			}
			continue
		}
		if exit.Status(err) != exit.Missing {
			t.Fatalf("%q, %q: %v", tc.socket, tc.state, err)
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(tc.want) {
			t.Fatalf("%q, %q: %v", tc.socket, tc.state, err)
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, tc.want[i]+": open ") || !strings.Contains(line, "mkdir -p ") {
				t.Errorf("%q, %q: %s", tc.socket, tc.state, line)
			}
			testenv.Ended(t, exit.Missing, line)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Errorf("%s was made", missing)
	}
}
