package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentation parses the example in docs/policy.md, and expects all keys in the table there.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(text)) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			example.WriteString(code)
		}
	}
	p, err := Parse("docs/policy.md", []byte(example.String()))
	if err != nil {
		t.Fatal(err)
	}
	if h := p.For("", "alpha"); len(h.MACs) != 2 || h.VLANs.Len() != 11 || h.MaxMemory != 64<<20 || h.MaxSessions != 1 ||
		h.MaxTxRate != 500e6 || h.MaxTxPPS != 100_000 || h.MaxTxGroupPPS != 1000 || len(h.IPs) != 2 || !h.SingleTag ||
		h.MaxRxRate != 1e9 {
		t.Errorf("alpha: %+v", h)
	}
	if h := p.For("", "hypervisor3"); !h.Promiscuous || !h.AnyMAC || h.VLANs.String() != "none" || h.MaxTxRate != 0 ||
		h.MaxRxRate != 10e9 {
		t.Errorf("hypervisor3: %+v", h)
	}
	for _, key := range keys() {
		if !strings.Contains(string(text), "| `"+key+"` |") {
			t.Errorf("the table does not have %s", key)
		}
	}
}

// TestExample parses the example of a policy that the packages have. It expects all keys in it, and
// that its entries say something else than its default.
func TestExample(t *testing.T) {
	const name = "../../../examples/config/policy.yaml"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys() {
		if !regexp.MustCompile(`(?m)^ +` + key + `: `).Match(text) {
			t.Errorf("%s does not have %s", name, key)
		}
	}
	if h := p.For("", "alpha"); len(h.MACs) != 1 || len(h.IPs) != 2 || h.VLANs.Len() != 11 || h.MaxMACs != 16 {
		t.Errorf("alpha: %+v", h)
	}
	if h := p.For("", "beta"); !h.Promiscuous || !h.AnyMAC || h.MaxMACs != 128 {
		t.Errorf("beta: %+v", h)
	}
	if h := p.For("sha256:0HpcyyuG8RoQtZp5I5Y8sUzGwNNh1jQ1KX2eYf1hBcE", ""); h.Share != "vrrp" || h.MaxSessions != 2 {
		t.Errorf("the key: %+v", h)
	}
}
