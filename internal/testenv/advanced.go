package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SplitAdvanced takes the words "--advanced.NAME=VALUE", or "--advanced.NAME" and the value behind
// it, out of a command line of splitnic. They stand for advanced settings, which only a
// configuration file can have; it returns the text of that file, which is empty without them. Of
// several values of a setting, the last one counts, as with flags.
func SplitAdvanced(args []string) (rest []string, config string) {
	var names []string
	values := make(map[string]string)
	for i := 0; i < len(args); i++ {
		name, advanced := strings.CutPrefix(args[i], "--advanced.")
		if !advanced {
			rest = append(rest, args[i])
			continue
		}
		name, value, joined := strings.Cut(name, "=")
		if !joined {
			i++
			value = args[i]
		}
		if _, again := values[name]; !again {
			names = append(names, name)
		}
		values[name] = value
	}
	for i, name := range names {
		if i == 0 {
			config = "advanced:\n"
		}
		config += fmt.Sprintf("  %s: %q\n", name, values[name])
	}
	return rest, config
}

// Advanced returns args with the file of SplitAdvanced as --config, if there is one. It is removed
// at the end of the test.
func Advanced(t testing.TB, args []string) []string {
	t.Helper()
	args, config := SplitAdvanced(args)
	if config == "" {
		return args
	}
	path := filepath.Join(t.TempDir(), "advanced.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(args, "--config", path)
}
