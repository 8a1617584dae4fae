package main

import (
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/goccy/go-yaml"
)

// TestExamples reads the example configurations in the documentation, deploy/ and examples/. It
// expects that the plugin accepts them and knows all of their fields.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/cni.md")
	if err != nil {
		t.Fatal(err)
	}
	_, from, _ := strings.Cut(string(page), "\n```json\n")
	conflist, _, found := strings.Cut(from, "\n```\n")
	if !found {
		t.Fatal("there is no example")
	}
	configs := map[string]string{"cni.md": conflist}
	for _, name := range []string{"deploy/kubernetes/network.yaml", "examples/config/pod.yaml"} {
		manifest, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		var attachment struct{ Spec struct{ Config string } }
		if err := yaml.Unmarshal(manifest, &attachment); err != nil { // the first document
			t.Fatal(err)
		}
		configs[name] = attachment.Spec.Config
	}
	for name, text := range configs {
		list, err := libcni.NetworkConfFromBytes([]byte(text))
		if err != nil || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != program {
			t.Fatalf("%s: %+v, %v", name, list, err)
		}
		c, err := load(&skel.CmdArgs{StdinData: list.Plugins[0].Bytes})
		if err == nil {
			err = c.allKnown()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
