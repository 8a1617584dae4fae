package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestAdvanced(t *testing.T) {
	args := []string{"host", "--advanced.spin", "20us", "--name", "sn0", "--advanced.handler-cpus=1=0,2=1"}
	rest, config := SplitAdvanced(args)
	if !slices.Equal(rest, []string{"host", "--name", "sn0"}) ||
		config != "advanced:\n  spin: \"20us\"\n  handler-cpus: \"1=0,2=1\"\n" {
		t.Errorf("%q, %q", rest, config)
	}
	got := Advanced(t, args)
	text, err := os.ReadFile(got[len(got)-1])
	if strings.Join(got[:len(got)-1], " ") != "host --name sn0 --config" || string(text) != config {
		t.Errorf("%q with %q, %v", got, text, err)
	}
	again := append(args, "--advanced.spin=0s")
	if _, config := SplitAdvanced(again); config != "advanced:\n  spin: \"0s\"\n  handler-cpus: \"1=0,2=1\"\n" {
		t.Errorf("a setting given twice: %q", config)
	}
	if got := Advanced(t, rest); !slices.Equal(got, rest) {
		t.Errorf("without advanced settings: %q", got)
	}
}
