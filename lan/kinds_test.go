package lan_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
)

// TestKindsDocument expects docs/choose.md to have the rows of all kinds.
func TestKindsDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/choose.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, k := range lan.Kinds() {
		also := ""
		if k.Name == lan.Default {
			also = ", the default"
		}
		fmt.Fprintf(&rows, "| `--lan %s:%s`%s | %s |\n", k.Name, k.Example, also, k.When)
	}
	if !strings.Contains(string(text), "|---|---|\n"+rows.String()+"| `--iounit") {
		t.Errorf("docs/choose.md has other rows than these:\n%s", rows.String())
	}
}

// TestKinds examines the facts of all kinds, and expects what follows from them: a specification of
// each kind is parsed, and one without an argument is refused with a documented error.
func TestKinds(t *testing.T) {
	for _, f := range lan.Kinds() {
		if f.Argument == "" || f.Noun == "" || f.Netdevice() && f.Needs.Name == "" || (f.Module == "") != (f.Instead == "") {
			t.Errorf("facts are missing: %+v", f)
		}
		if !strings.Contains(lan.Usage(), string(f.Name)+":"+f.Argument) {
			t.Errorf("%s is not in %q", f.Name, lan.Usage())
		}
		kind, arg, err := lan.ParseSpec(string(f.Name) + ":" + f.Example)
		if err != nil || kind != f.Name || arg != f.Example {
			t.Errorf("the example of %s is %s %q, %v", f.Name, kind, arg, err)
		}
		_, _, err = lan.ParseSpec(string(f.Name) + ":")
		if err == nil || !strings.Contains(err.Error(), "names no "+f.Noun) {
			t.Errorf("%s without argument: %v", f.Name, err)
			continue
		}
		testenv.Explained(t, "--lan: "+err.Error())
	}
}
