package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// adapterFamily names the family of adapters for the library of ci/softroce/adapter.
const adapterFamily = "SPLITNIC_ADAPTER"

// Adapter returns the variables with which a program sees each Soft-RoCE device as an adapter of
// a family of this file, which is usually internal/adapters/facts.txt.
func Adapter(t testing.TB, family, facts string) []string {
	t.Helper()
	library, err := filepath.Abs("../../build/adapter.so")
	if err == nil {
		facts, err = filepath.Abs(facts)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		Missing(t, "adapter", "%v: `make build/adapter.so` builds it", err)
	}
	return []string{"LD_PRELOAD=" + library, adapterFamily + "=" + family, adapterFamily + "_FACTS=" + facts}
}

// AdapterFamily returns the family that this process sees, empty for none.
func AdapterFamily() string { return os.Getenv(adapterFamily) }
