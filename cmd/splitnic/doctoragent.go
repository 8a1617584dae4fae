package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
)

// places has the paths of files and directories that an agent and container runtimes use.
type places struct {
	state, socket    string
	namespace, named string   // namespace of this process, directory of named ones
	networks         string   // CNI configuration
	plugins          []string // directories
	writable         func(path string) error
}

// agentPlaces has the paths of an agent without flags, as the packages install it.
var agentPlaces = places{
	state: daemon.StateDir, socket: statussock.Path(cards.AgentSocket),
	namespace: "/proc/self/ns/net", named: "/run/netns",
	networks: "/etc/cni/net.d", plugins: []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/local/lib/cni"},
	writable: func(path string) error { return unix.Access(path, unix.W_OK) },
}

func (p *places) check(ctx context.Context, r *report) {
	p.checkState(r)
	has, err := daemon.Capabilities()
	p.checkNamespaces(r, err != nil || has(unix.CAP_SYS_ADMIN))
	p.checkCNI(r)
	p.checkAgent(ctx, r)
}

// checkState reports whether cards can be recorded for the next process.
func (p *places) checkState(r *report) {
	const check = "state"
	const fix = "run as root, on a file system that is not read-only, or name another directory with --state of the agent"
	info, err := os.Stat(p.state)
	switch {
	case errors.Is(err, os.ErrNotExist):
		parent := p.state
		for errors.Is(err, os.ErrNotExist) && parent != "/" {
			parent = filepath.Dir(parent)
			_, err = os.Stat(parent)
		}
		if err := p.writable(parent); err != nil {
			r.forbidden(check, fmt.Sprintf("%s is missing, and cannot be made in %s: %v", p.state, parent, err), fix)
			return
		}
		r.ok(check, "%s: the agent will make it", p.state)
	case err != nil:
		r.forbidden(check, err.Error(), fix)
	case !info.IsDir():
		r.missing(check, p.state+" is no directory", "remove it, or name another one with --state of the agent")
	default:
		// The agent makes the directories cards and keys, and may have made them as another user.
		for _, dir := range []string{p.state, filepath.Join(p.state, "cards"), filepath.Join(p.state, "keys")} {
			if err := p.writable(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				r.forbidden(check, fmt.Sprintf("%s cannot be written to: %v", dir, err), fix)
				return
			}
		}
		noted, _ := filepath.Glob(p.state + "/cards/*.json")
		r.ok(check, "%s, with %s", p.state, render.Counted(len(noted), "card"))
	}
}

// checkNamespaces reports whether netdevices can be made in other network namespaces.
func (p *places) checkNamespaces(r *report, may bool) {
	const check = "namespaces"
	if _, err := os.Stat(p.namespace); err != nil {
		r.missing(check, "this kernel has no network namespaces: "+err.Error(), "a kernel with CONFIG_NET_NS")
		return
	}
	if !may {
		r.forbidden(check, "CAP_SYS_ADMIN is missing, without which no other network namespace can be entered",
			"run as root, or AmbientCapabilities=CAP_SYS_ADMIN of the service")
		return
	}
	names, _ := os.ReadDir(p.named)
	r.ok(check, "can be entered; %d have a name", len(names))
}

// plugin is the program that container runtimes start.
const plugin = "splitnic-cni"

// checkCNI reports whether container runtimes find a network and its plugin. It is no error if
// there is neither, because cards can be made by hand.
func (p *places) checkCNI(r *report) {
	networks := p.usingPlugin()
	if len(networks) == 0 {
		r.warn("CNI network", fmt.Sprintf("no file in %s names %s: containers get no cards", p.networks, plugin),
			"copy one from docs/cni.md, if they are to have some")
	} else {
		r.ok("CNI network", "%s", strings.Join(networks, ", "))
	}
	var found []string
	for _, dir := range p.plugins {
		path := filepath.Join(dir, plugin)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			found = append(found, path)
		}
	}
	switch {
	case len(found) > 0:
		r.ok("CNI plugin", "%s", strings.Join(found, ", "))
	case len(networks) > 0:
		r.missing("CNI plugin", plugin+" is in none of "+strings.Join(p.plugins, ", "),
			"install the package, or link it where the runtime looks")
	default:
		r.warn("CNI plugin", plugin+" is in none of "+strings.Join(p.plugins, ", "), "install the package, for containers")
	}
}

// usingPlugin returns the configuration files of networks that use the plugin.
func (p *places) usingPlugin() (files []string) {
	entries, _ := os.ReadDir(p.networks)
	for _, e := range entries {
		path := filepath.Join(p.networks, e.Name())
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(path)) {
			continue
		}
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), `"`+plugin+`"`) {
			files = append(files, path)
		}
	}
	return files
}

// checkAgent reports whether an agent runs and answers.
func (p *places) checkAgent(ctx context.Context, r *report) {
	list, _, err := cards.Client(p.socket).List(ctx)
	switch {
	case err == nil:
		r.ok("agent", "runs, with %s", render.Counted(len(list.Cards), "card"))
	case errors.Is(err, statussock.ErrLeft):
		r.warn("agent", err.Error(), "systemctl status splitnic-agent")
	case errors.Is(err, statussock.ErrNobody):
		r.ok("agent", "does not run yet: nobody serves %s", p.socket)
	case errors.Is(err, os.ErrPermission):
		r.forbidden("agent", err.Error(), "run as root")
	default:
		r.missing("agent", err.Error(), "systemctl status splitnic-agent")
	}
}
