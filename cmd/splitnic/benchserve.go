package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/verbs"
)

func (b *benchConfig) serve(cmd *cobra.Command) (err error) {
	secret, given, err := b.readSecret()
	if err != nil {
		return err
	}
	if !given {
		secret = bench.NewSecret()
	}
	security, err := secret.ServerSecurity()
	if err != nil {
		return err
	}
	if b.device == "" {
		if b.device, err = deviceAt(b.listen, verbs.DevicesAt); err != nil {
			return err
		}
	}
	dev, mcfg, err := b.open(b.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	out := cmd.OutOrStdout()
	server, err := bench.Listen(b.listen, bench.ServerConfig{
		Device: dev, Security: security, Kind: b.kind, Modes: b.modes, Forever: b.forever,
		Messaging: mcfg, Name: benchName(), Software: version,
		Prepare: prepareBench,
		Served:  func(s bench.Served) { fmt.Fprint(out, servedLine(s)) },
		Failed:  func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "splitnic:", err) },
	})
	if err != nil {
		return daemon.ExplainListen("--listen", err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	shown := ""
	if !given {
		shown = secret.Reveal()
	}
	fmt.Fprint(out, invitation(b.kind, dev.Name(), reachable(dev.context, server.Addr()), shown))
	err = server.Run(cmd.Context())
	if b.forever && cmd.Context().Err() != nil {
		return nil // an interrupt is its normal end
	}
	return err
}

// deviceAt returns the name of the RDMA device that has the address to listen on. at returns the
// devices with an address. deviceAt returns "" if listen is every address, a name, or the address
// of no device. Then the machine's only device is used, or the user has to choose one.
func deviceAt(listen string, at func(netip.Addr) ([]string, error)) (string, error) {
	host, _, err := net.SplitHostPort(bench.WithPort(listen))
	if err != nil {
		return "", err
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() {
		return "", nil
	}
	names, err := at(addr)
	switch {
	case err != nil:
		return "", exit.With(exit.Missing, err)
	case len(names) > 1:
		return daemon.ChooseDevice("", names)
	case len(names) == 1:
		return names[0], nil
	}
	return "", nil
}

// invitation returns the instructions for the other node. secret is empty if the user has it
// already.
func invitation(kind bench.Kind, device, addr, secret string) string {
	command := fmt.Sprintf("splitnic bench %s %s", kind, addr)
	if secret == "" {
		return fmt.Sprintf("Device %s is waiting. On the other node, with the same secret, run\n\n  %s\n\n", device, command)
	}
	return fmt.Sprintf("Device %s is waiting. On the other node, run\n\n  %s=%s %s\n\n", device, secretVariable, secret,
		command)
}

// reachable returns the address to use on the other node: the listening address or, if this is
// every address, that of the device, or the host name if the device has none.
func reachable(dev *verbs.Context, listening net.Addr) string {
	at, ok := listening.(*net.TCPAddr)
	if !ok {
		return listening.String()
	}
	name := at.IP.String()
	if at.IP.IsUnspecified() {
		name = daemon.Hostname()
		if gid, _, err := dev.ChooseGID(); err == nil && gid.GID.Addr().Unmap().IsGlobalUnicast() {
			name = gid.GID.Addr().Unmap().String()
		}
	}
	return shortAddr(name, at.Port)
}

// shortAddr joins name and port, and omits the default port.
func shortAddr(name string, port int) string {
	if port == bench.DefaultPort {
		return name
	}
	return net.JoinHostPort(name, strconv.Itoa(port))
}

func servedLine(s bench.Served) string {
	text := fmt.Sprintf("%v measured %s, mode %s, %d bytes", s.Peer, s.Spec.Kind, s.Spec.Mode, s.Spec.Size)
	if s.Time > 0 {
		rate := float64(s.Messages) / s.Time.Seconds()
		return fmt.Sprintf("%s: %d messages received, %.2f MiB/s, %.6f Mpps\n", text, s.Messages,
			rate*float64(s.Spec.Size)/(1<<20), rate/1e6)
	}
	return fmt.Sprintf("%s: %d messages echoed\n", text, s.Messages)
}
