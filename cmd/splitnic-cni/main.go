// Command splitnic-cni is a CNI plugin: it gives a container a card of `splitnic agent` on
// this machine. A container runtime runs it, as defined by the CNI specification (ADD, DEL,
// CHECK, GC, STATUS and VERSION, up to version 1.1). docs/cni.md has its configuration.
//
// The plugin keeps no state. The agent records the owner of each card (config.go). So cards
// that a killed plugin or runtime has left are found again.
package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

var buildVersion = "devel" // set by -ldflags

func main() {
	// When a runtime gives up, it ends the plugin, which then removes what it has made. The
	// plugin does the same if the runtime does not read the result any more: SIGPIPE is ignored,
	// and the write fails.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE)
	with := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return do(ctx, args) }
	}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: with(add), Del: with(del), Check: with(check), GC: with(collect), Status: with(status),
	}, version.All, program+" version "+buildVersion+", a CNI plugin: container runtimes run it, see docs/cni.md")
}
