package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
)

const agentHeading = "AGENT"

// Cards prints a line for each card.
func Cards(w io.Writer, all []cards.Info, now time.Time) error {
	t := columns{}
	t.add(cardHeading, "STATE", "FOR", "NETDEV", netnsHeading, "MAC", "CARRIER", unitHeading, ownerHeading, noteHeading)
	for i := range all {
		spec, s := &all[i].Spec, &all[i].Status
		mac, carrier := s.MAC, upDown(s.Carrier)
		if s.State == cards.Failed {
			mac, carrier = none, none
		}
		t.add(spec.Name, string(s.State), duration(now.Sub(s.Since)), spec.Netdevice, namespace(spec.NetNS), mac, carrier,
			s.IOUnit, spec.Owner, s.Error)
	}
	if len(t.rows) == 1 {
		return nil
	}
	t.dropEmpty()
	return t.print(w)
}

// namespace returns the name of a network namespace for ip-netns(8), or its path if it has none.
func namespace(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, "/run/netns/"), "/var/run/netns/")
}

// agentTables returns a table with the agent's line, and one with its failed cards. The other
// cards have lines in the table of hosts.
func agentTables(s *daemon.AgentStatus, now time.Time) []*columns {
	agent := &columns{}
	agent.add(agentHeading, "FOR", "CARDS", "CONNECTED", "FAILED", "DEVICE", noteHeading)
	connected, failed := 0, &columns{indent: "  "}
	failed.add(cardHeading, "STATE", "FOR", "NETDEV", netnsHeading, noteHeading)
	for i := range s.Cards {
		spec, c := &s.Cards[i].Spec, &s.Cards[i].Status
		switch c.State {
		case cards.Connected:
			connected++
		case cards.Failed:
			failed.add(spec.Name, string(c.State), duration(now.Sub(c.Since)), spec.Netdevice, namespace(spec.NetNS), c.Error)
		case cards.Connecting:
		}
	}
	note := ""
	if s.Reload.Error != "" {
		note = "reload FAILED: " + s.Reload.Error
	}
	agent.add(s.Name, duration(now.Sub(s.Since)), strconv.Itoa(len(s.Cards)), strconv.Itoa(connected),
		strconv.Itoa(len(failed.rows)-1), strings.Join(s.Devices, ","), note)
	if len(failed.rows) == 1 {
		return []*columns{agent}
	}
	return []*columns{agent, failed}
}

// printAgent prints everything about an agent; its cards are printed as hosts.
func printAgent(w io.Writer, s *daemon.AgentStatus) {
	fmt.Fprintf(w, "agent %s\tfor %v\n", s.Name, ago(s.Since))
	fmt.Fprintf(w, "  software\t%s\n", s.Software)
	fmt.Fprintf(w, "  devices\t%s\n", strings.Join(s.Devices, ", "))
	fmt.Fprintf(w, "  cards\t%d of %d\n", len(s.Cards), s.MaxCards)
	if s.Reload.Error != "" {
		fmt.Fprintf(w, "  reload\tFAILED: %s\n", s.Reload.Error)
	}
	for i := range s.Cards {
		spec, c := &s.Cards[i].Spec, &s.Cards[i].Status
		where := spec.Netdevice
		if spec.NetNS != "" {
			where += " in " + namespace(spec.NetNS)
		}
		fmt.Fprintf(w, "  card %s\t%s, %s for %v", spec.Name, where, c.State, ago(c.Since))
		if c.Error != "" {
			fmt.Fprintf(w, ": %s", strings.ReplaceAll(c.Error, "\n", "; "))
		}
		fmt.Fprintln(w)
	}
}
