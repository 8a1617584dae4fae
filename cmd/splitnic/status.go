package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func statusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status [NAME…]",
		Short: "Show what the hosts and I/O units on this machine are doing",
		Long: `Show what the hosts and I/O units on this machine are doing.

Without arguments it asks every one that has its socket in ` + statussock.Dir + `. ` + whichNames + `
With --json it prints one JSON document, a list.`,
		RunE: func(cmd *cobra.Command, sockets []string) error {
			sockets, err := socketsOr(sockets, "status")
			if err != nil {
				return err
			}
			all := make([]json.RawMessage, 0, len(sockets))
			var errs []error
			for _, path := range sockets {
				raw, err := statussock.Read(cmd.Context(), path)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				all = append(all, raw)
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				errs = append(errs, enc.Encode(all))
			} else {
				for _, raw := range all {
					errs = append(errs, printStatus(cmd.OutOrStdout(), raw))
				}
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// hostView is the status of a host's process.
type hostView struct {
	host.Status
	Security SecurityStatus `json:"security"`
}

// unitView is the status of an I/O unit's process.
type unitView struct {
	iounit.Status
	Security SecurityStatus `json:"security"`
}

// printStatus prints the status of one daemon for people.
func printStatus(w io.Writer, raw json.RawMessage) error {
	var head struct {
		Role string `json:"role"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	if head.Role == "host" {
		var s hostView
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("status: %w", err)
		}
		printHost(tw, &s)
		return nil
	}
	var s unitView
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	printUnit(tw, &s)
	return nil
}

// ago is how long ago t was. The clock may have been set since.
func ago(t time.Time) time.Duration { return max(time.Since(t), 0).Round(time.Second) }

func printHost(w io.Writer, s *hostView) {
	carrier := "no carrier"
	if s.Netdevice.Carrier {
		carrier = "carrier"
	}
	fmt.Fprintf(w, "host %s\t%s for %v\n", s.Name, s.State, ago(s.Since))
	fmt.Fprintf(w, "  netdevice\t%s, %s, mtu %d, %s%s\n", s.Netdevice.Name, s.Netdevice.MAC, s.Netdevice.MTU, carrier, historyText(&s.Netdevice))
	fmt.Fprintf(w, "  offloads\t%s\n", s.Netdevice.Offloads)
	fmt.Fprintf(w, "  early discard\t%v\n", s.Netdevice.EarlyDiscard)
	printLatency(w, "  ", s.Latency)
	fmt.Fprintf(w, "  I/O unit\t%s %s %s\n", s.IOUnit.Address, s.IOUnit.Name, s.IOUnit.Fingerprint)
	printFailovers(w, "  ", &s.Failovers)
	if s.IOUnit.Mode != "" {
		fmt.Fprintf(w, "  mode\t%s\n", s.IOUnit.Mode)
	}
	if s.Filter != nil {
		fmt.Fprintf(w, "  receives\t%s\n", filterText(s.Filter))
	}
	if s.VLANs != nil {
		fmt.Fprintf(w, "  VLANs\t%v\n", s.VLANs)
	}
	if r := s.LastRefusal; r != nil {
		fmt.Fprintf(w, "  last refusal\t%s %s, %v ago: %s\n", r.What, r.Wanted, ago(r.At), r.Reason)
	}
	if s.IOUnit.Insecure {
		fmt.Fprintf(w, "  security\tINSECURE: nobody is authenticated\n")
	}
	fmt.Fprintf(w, "  device\t%s\n", s.Device)
	printProtection(w, "  ", s.Protection)
	printSecurity(w, &s.Security)
	printCounts(w, "sessions ended here", s.Ended)
	if s.LastError != "" {
		fmt.Fprintf(w, "  last error\t%s\n", s.LastError)
	}
	if s.Traffic != nil {
		printTraffic(w, "  ", s.Traffic)
	}
	newHandlersView(s.CompVectors, s.Handling, s.Traffic).print(w, "  ")
}

// historyText says how long the netdevice has been there, if that is known, and
// in how many processes.
func historyText(n *host.NetdeviceStatus) string {
	text := ""
	if !n.Since.IsZero() {
		text = fmt.Sprintf("; there for %v", ago(n.Since))
	}
	if n.Adopted > 0 {
		text += fmt.Sprintf(", taken over %d times", n.Adopted)
	}
	return text
}

func printUnit(w io.Writer, s *unitView) {
	link := "down"
	if s.LAN.Up {
		link = "up"
	}
	fmt.Fprintf(w, "iounit %s\tfor %v, %d hosts\n", s.Name, ago(s.Since), len(s.Hosts))
	fmt.Fprintf(w, "  LAN\t%s, mtu %d, %d Mbit/s %s\n", link, s.LAN.MTU, s.LAN.SpeedMbps, s.LAN.Error)
	fmt.Fprintf(w, "  device\t%s\n", s.Device)
	printProtection(w, "  ", s.Protection)
	printSecurity(w, &s.Security)
	printTotals(w, &s.Status)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		fmt.Fprintf(w, "  host %s\t%s, %s on %s, mtu %d, for %v\n", h.Name, h.Address, h.MAC, h.Interface, h.MTU, ago(h.Since))
		if h.Insecure {
			fmt.Fprintf(w, "    security\tINSECURE: not authenticated\n")
		} else {
			fmt.Fprintf(w, "    key\t%s\n", h.Fingerprint)
		}
		printPort(w, "    ", h)
		printLatency(w, "    ", h.Latency)
		if h.Traffic != nil {
			printTraffic(w, "    ", h.Traffic)
			newHandlersView(s.CompVectors, messaging.HandlingOf(h.Traffic), h.Traffic).print(w, "    ")
		}
	}
}

// filterText says what a host receives besides what is for it and for all.
func filterText(f *protocol.ReceiveFilter) string {
	switch {
	case f.Promisc:
		return "everything on the LAN"
	case f.AllMulti:
		return fmt.Sprintf("all multicast, %d further addresses", len(f.Unicast))
	default:
		return fmt.Sprintf("%d groups, %d further addresses", len(f.Multicast), len(f.Unicast))
	}
}

// poolsText lists pools, such as 256×2048, 32×65535.
func poolsText(pools []messaging.Pool) string {
	var text []string
	for _, p := range pools {
		t := fmt.Sprintf("%d×%d", p.Elements, p.ElementSize)
		if p.Extra {
			t += " (asked for)"
		}
		text = append(text, t)
	}
	if text == nil {
		return "none"
	}
	return strings.Join(text, ", ")
}

// printProtection says what bounds the other half to the memory that it is
// lent.
func printProtection(w io.Writer, indent string, p messaging.Protecting) {
	fmt.Fprintf(w, "%sprotection\t%s: %s; %s\n", indent, p.Name, p.Name.Description(), p.Why)
}

func printTraffic(w io.Writer, indent string, s *messaging.Stats) {
	if s.Bound {
		fmt.Fprintf(w, "%sbinding\tboth sides have proved that the queue pairs are theirs\n", indent)
	} else {
		fmt.Fprintf(w, "%sbinding\tnone: the peer has not proved that the queue pairs are its own\n", indent)
	}
	fmt.Fprintf(w, "%spools protected by\t%s: %s\n", indent, s.Protection.Name, s.Protection.Why)
	fmt.Fprintf(w, "%smemory\t%.1f MiB registered\n", indent, float64(s.MemoryPinned)/(1<<20))
	fmt.Fprintf(w, "%spools on request\t%d asked for, %d given back; %d lent, %d refused, %d taken back\n",
		indent, s.PoolsAsked, s.PoolsGiven, s.PoolsGranted, s.PoolsRefused, s.PoolsReturned)
	for i, c := range s.Channels {
		moderated := ""
		if c.Moderated {
			moderated = ", moderated"
		}
		fmt.Fprintf(w, "%squeue %d%s\tQP %#x ↔ %#x, handler %d, completion vector %d%s\n", indent, i+1, class(&c), c.QPN, c.PeerQPN, c.Handler, c.CompVector, moderated)
		fmt.Fprintf(w, "%s  to the peer\t%d frames, %d bytes, %d doorbells, %d too long, %d malformed, %d waits for credit\n",
			indent, c.TxFrames, c.TxBytes, c.TxPosts, c.TxTooLong, c.TxMalformed, c.TxNoCredit)
		fmt.Fprintf(w, "%s  from the peer\t%d frames, %d bytes, %d dropped, %d malformed, %d over the MTU\n",
			indent, c.RxFrames, c.RxBytes, c.RxDropped, c.RxMalformed, c.RxOverMTU)
		fmt.Fprintf(w, "%s  credits\t%d of %d available here, %d of %d lent to the peer\n",
			indent, c.Granted.Available, c.Granted.Elements, c.Lent.Lent, c.Lent.Elements)
		fmt.Fprintf(w, "%s  pools\t%s here; %s lent to the peer, %.1f MiB with the send buffers\n",
			indent, poolsText(c.GrantedPools), poolsText(c.LentPools), float64(c.MemoryPinned)/(1<<20))
		if c.WindowsBound > 0 {
			fmt.Fprintf(w, "%s  windows\t%d bound, %d invalidated here, %d by the peer\n", indent, c.WindowsBound, c.WindowsInvalidated, c.WindowsGivenUp)
		}
		if c.RxLost+c.RxLate > 0 {
			fmt.Fprintf(w, "%s  lost on the fabric\t%d frames, %d late\n", indent, c.RxLost, c.RxLate)
		}
	}
}

// socketsOr returns the sockets that were named for a command, or else those of
// every host and I/O unit on this machine.
func socketsOr(named []string, command string) ([]string, error) {
	if len(named) > 0 {
		paths := make([]string, 0, len(named))
		for _, name := range named {
			paths = append(paths, socketPath(name))
		}
		return paths, nil
	}
	sockets, err := statussock.List()
	if err == nil && len(sockets) == 0 {
		err = exitError{code: exitMissing, err: fmt.Errorf("no host or I/O unit runs on this machine, or it has its socket elsewhere: splitnic %s SOCKET", command)}
	}
	return sockets, err
}

// socketPath is the socket that a user means: its path, the name of a host's
// netdevice, or what it is called in /run/splitnic, such as iounit-7580.
func socketPath(name string) string {
	switch {
	case strings.ContainsRune(name, '/'), strings.HasSuffix(name, ".sock"):
		return name
	case strings.HasPrefix(name, "iounit-"), strings.HasPrefix(name, "host-"):
		return statussock.Path(name)
	}
	return statussock.Path("host-" + name)
}
