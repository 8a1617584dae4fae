package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/internal/settings"
)

// instead has what does the work of commands that other programs have.
var instead = map[string]string{
	"up":        "`splitnic host` makes a netdevice, as the service splitnic-host@NAME does",
	"start":     "`splitnic host`, iounit or agent starts one, as the services splitnic-… do: systemctl start",
	"run":       "`splitnic host`, iounit or agent starts one, as the services splitnic-… do: systemctl start",
	"down":      "the netdevice goes with its process: systemctl stop splitnic-host@NAME",
	"stop":      "systemctl stop splitnic-host@NAME, splitnic-iounit or splitnic-agent; or SIGTERM",
	"restart":   "systemctl restart splitnic-host@NAME, splitnic-iounit or splitnic-agent",
	"logs":      "journalctl -u 'splitnic-*' shows the log",
	"log":       "journalctl -u 'splitnic-*' shows the log",
	"bugreport": "`splitnic doctor --report FILE` writes one",
	"genkey":    "`splitnic keygen` makes a key, and prints its fingerprint for the other side",
	"pubkey":    "`splitnic keygen` prints the fingerprint of a key, which the other side has to trust",
	"policy":    "`splitnic check iounit FILE` checks the policy that FILE names",
	"dump":      "`splitnic capture` captures frames",
	"tcpdump":   "`splitnic capture` captures frames",
	"link":      "`splitnic status` shows the cards, `ip link` their netdevices",
	"addr":      "`ip addr` is for netdevices of splitnic, too",
	"get":       "`splitnic status` shows the cards",
	"describe":  "`splitnic status NAME` shows a card",
	"inspect":   "`splitnic status NAME` shows a card",
	"set":       "settings are flags and files: `splitnic check` finds mistakes, `splitnic reload` reads keys, trust and policy",
	"cordon":    "`splitnic iounit drain` accepts no more hosts",
	"uncordon":  "`splitnic iounit undrain` accepts hosts again",
	"ping":      "`splitnic doctor --peer ADDRESS` tries the path to the other machine",
	"test":      "`splitnic doctor --self-test` tries an adapter",
}

// argument has the flags whose value a newcomer writes without the flag, by command.
var argument = map[string]string{
	"splitnic host": "iounit", "splitnic agent": "iounit", "splitnic iounit": "lan", "splitnic keygen": "out",
}

// endpointRoles are the values of --role of the doctor, and the commands of the endpoints.
var endpointRoles = []string{"host", "agent", "iounit"}

// asFlags returns an argument in the form of the flags of c that probably have just this value.
func asFlags(c *cobra.Command, word string) (written []string) {
	flags := c.Flags()
	switch ext := filepath.Ext(word); {
	case flags.Lookup("config") != nil && (ext == ".yaml" || ext == ".yml"):
		return []string{"--config " + word}
	case flags.Lookup("role") != nil && slices.Contains(endpointRoles, word):
		return []string{"--role " + word}
	}
	if _, err := settings.Bool(word); err != nil {
		return nil
	}
	flags.Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" { // --persist yes
			written = append(written, fmt.Sprintf("--%s=%s", f.Name, word))
		}
	})
	return written
}

// otherNames has the flags that do what flags of other programs do. Only some of them are flags of
// the same command.
var otherNames = map[string][]string{
	"peer": {"iounit"}, "endpoint": {"iounit"}, "server": {"iounit"}, "gateway": {"iounit"}, "remote": {"iounit"},
	"interface": {"lan", "name", "netdev"}, "iface": {"lan", "name", "netdev"}, "nic": {"lan", "name", "netdev"},
	"ifname": {"lan", "name", "netdev"}, "bridge": {"lan"}, "uplink": {"lan"},
	"listen-port": {"listen"}, "bind": {"listen"}, "address": {"listen"}, "namespace": {"netns"},
	"private-key": {"key"}, "public-key": {"trust"}, "allowed": {"trust"}, "authorized": {"trust-file"},
	"output": {"json"}, "format": {"json"}, "o": {"json"}, "follow": {"watch"}, "f": {"watch", "config"},
	"d": {"interval"}, "n": {"interval"}, "delay": {"interval"}, "for": {"connected", "carrier"},
	"verbose": {"log-level"}, "debug": {"log-level"}, "v": {"log-level"},
}

// synonyms returns the flags of c that do what a flag of another program does.
func synonyms(c *cobra.Command, name string) (found []string) {
	for _, other := range otherNames[name] {
		if f := c.Flags().Lookup(other); f != nil && !f.Hidden {
			found = append(found, other)
		}
	}
	return found
}

// withFlag returns the paths of the endpoints' commands that have a flag, in quotation marks.
func withFlag(root *cobra.Command, name string) (paths []string) {
	for _, c := range root.Commands() {
		if f := c.Flags().Lookup(name); f != nil && !f.Hidden && slices.Contains(endpointRoles, c.Name()) {
			paths = append(paths, "`"+c.CommandPath()+"`")
		}
	}
	return paths
}
