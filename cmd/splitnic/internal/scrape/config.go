package scrape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// Check returns an error if the file of --metrics-config, or a file that it names, cannot be used.
func Check(path string) error {
	err := web.Validate(path)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("--metrics-config: %w", err) // not an error in its content
	}
	// An error with several mistakes has a line for each; they are joined to one line.
	return exit.Usagef("--metrics-config: %s: %s", path, strings.Join(strings.Fields(err.Error()), " "))
}

// Files returns the files that a process reads because of --metrics-config. If that file is
// invalid, Files omits the files that it names; Check reports the error.
func Files(path string) []string {
	if path == "" {
		return nil
	}
	files := []string{path}
	text, err := os.ReadFile(path)
	if err != nil {
		return files
	}
	var c struct {
		TLS struct {
			Cert      string `yaml:"cert_file"`
			Key       string `yaml:"key_file"`
			ClientCAs string `yaml:"client_ca_file"`
		} `yaml:"tls_server_config"`
	}
	if yaml.Unmarshal(text, &c) != nil {
		return files
	}
	for _, f := range []string{c.TLS.Cert, c.TLS.Key, c.TLS.ClientCAs} {
		switch {
		case f == "":
		case filepath.IsAbs(f):
			files = append(files, f)
		default: // the toolkit resolves relative paths in this way
			files = append(files, filepath.Join(filepath.Dir(path), f))
		}
	}
	return files
}
