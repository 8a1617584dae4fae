package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/internal/settings"
	"github.com/splitnic/splitnic/verbs"
)

// classPlaces are the places where the traffic class of sessions is set.
type classPlaces struct {
	config string // directory of configuration files
	proc   string // processes, whose flags count
}

// check says that packets of sessions have no traffic class on a port of RoCE, unless it is set.
// Soft-RoCE and Soft-iWARP send through the kernel, with the means of which packets are marked.
func (l classPlaces) check(r *report, device, driver string, p verbs.PortAttr) {
	soft := driver == "rdma_rxe" || driver == "siw"
	if p.LinkLayer != verbs.LinkEthernet || soft || l.set(device) {
		return
	}
	r.ok(device, "port %d: packets have no traffic class without --traffic-class: see docs/deploy.md, Loss on the fabric",
		p.Port)
}

// set reports whether the traffic class of sessions of a device is set in a configuration file, or by a
// flag of a process.
func (l classPlaces) set(device string) bool {
	sets := func(value func(key string) string) bool {
		class, err := strconv.ParseUint(value("traffic-class"), 0, 8)
		of := value("device")
		return err == nil && class != 0 && (of == "" || of == device)
	}
	for _, args := range commandLines(l.proc) {
		if sets(inCommand(args)) {
			return true
		}
	}
	files, _ := filepath.Glob(filepath.Join(l.config, "*.yaml"))
	return slices.ContainsFunc(files, func(path string) bool { return sets(inFile(path)) })
}

// inFile returns a function that returns the value of a key of a configuration file, "" if it has none.
// The process that reads the file says what is wrong with it.
func inFile(path string) func(key string) string {
	var entries []settings.Entry
	if text, err := os.ReadFile(path); err == nil {
		if body, err := settings.Parse(path, text); err == nil {
			entries, _ = settings.Map(body)
		}
	}
	return func(key string) string {
		for _, e := range entries {
			if words, err := settings.Scalars(e.Value); e.Key == key && err == nil && len(words) == 1 {
				return words[0]
			}
		}
		return ""
	}
}

// inCommand returns such a function for the flags of a command line.
func inCommand(args []string) func(key string) string {
	return func(key string) string {
		for i, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--"+key+"="); ok {
				return value
			}
			if arg == "--"+key && i+1 < len(args) {
				return args[i+1]
			}
		}
		return ""
	}
}
