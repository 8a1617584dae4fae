package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/verbs"
)

type doctorFlags struct {
	device, peer   string
	selfTest, json bool
	planned        plannedRole
	report         string // file
}

// config returns the device to examine, empty for all, and the peer for which the GID is chosen.
func (f *doctorFlags) config() (device string, hint verbs.GIDHint, err error) {
	if err := f.planned.check(); err != nil {
		return "", hint, err
	}
	if f.selfTest && f.report != "" {
		return "", hint, exit.Usagef("--self-test and --report: give one of them; see `splitnic doctor --help`")
	}
	if f.peer != "" {
		if hint.Peer, err = netip.ParseAddr(f.peer); err != nil {
			return "", hint, exit.Usagef("--peer %q: not an IP address", f.peer)
		}
	}
	return f.device, hint, nil
}

func doctorCommand() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine: modules, devices, GIDs, MTUs, limits, capabilities",
		Long: `Check this machine: modules, devices, GIDs, MTUs, limits, capabilities.

With --self-test, test the properties of RDMA devices on which sessions rely: the protection of
memory, and events that wake a sleeping process. Two queue pairs of the same device write to each
other, with valid and with invalid keys. Each property has a line. yes: the device has it. no: it
does not, and splitnic works without; the line names the consequence. FAIL: splitnic needs it (exit
status 1). The last line is the verdict. The test takes some seconds, uses only its own memory, and
may run while there are sessions.

With --peer, also check that packets of the path MTU reach the RDMA device of the other side, which
has that address, and come back (pings of that length, which are not fragmented).

With --role, also check what a host, agent or I/O unit on this machine needs: the kernel, the
IOMMU, and the I/O units of --iounit, which must accept connections, or the network card of
--lan; for an agent also its state directory, network namespaces, the CNI configuration and
plugin, and whether it answers.

With --report, write the information for a bug report to one file: version, kernel, modules,
limits, devices, netdevices, settings and the status of each process. Private keys, comments and
anything that is not a setting are left out; names, addresses and fingerprints are included.`,
		Example: `  splitnic doctor
  splitnic doctor --peer 10.0.0.1
  splitnic doctor --role host --iounit 10.0.0.1
  splitnic doctor --role iounit --lan eth1
  splitnic doctor --role agent --iounit 10.0.0.1
  splitnic doctor --report splitnic-report.txt
  splitnic doctor --self-test --device mlx5_0`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			device, hint, err := f.config()
			if err != nil {
				return err
			}
			if f.selfTest {
				return selfTest(cmd, device, hint, f.json)
			}
			r := examine(cmd.Context(), device, hint, &f.planned)
			if f.report == "" {
				return r.tell(cmd.OutOrStdout(), f.json)
			}
			b := bugReport{config: "/etc/splitnic", proc: "/proc", sockets: statussock.List, doctor: r}
			if err := b.write(cmd.Context(), f.report); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: attach it to the report of a bug; look through it before\n", f.report)
			return err
		},
	}
	c.Flags().StringVar(&f.device, "device", "", "RDMA device to examine (default: all)")
	c.Flags().StringVar(&f.peer, "peer", "", "IP address of the peer: the GID is chosen for it, and packets of the path MTU must reach it")
	c.Flags().StringVar(&f.planned.role, "role", "", "planned role of this machine: host, agent or iounit")
	completeFlag(c, "role", oneOf(endpointRoles...))
	c.Flags().StringSliceVar(&f.planned.iounits, "iounit", nil, "I/O units that hosts are to reach, as for splitnic host")
	c.Flags().StringVar(&f.planned.lan, "lan", "", "network card to share, as for splitnic iounit")
	c.Flags().StringVar(&f.planned.netns, "netns", "", "network namespace of the network card")
	c.Flags().StringVar(&f.report, "report", "", "write everything to this new file, to attach to a bug report")
	boolVar(c.Flags(), &f.selfTest, "self-test", false, "test the properties of the devices on which sessions rely, in loopback")
	boolVar(c.Flags(), &f.json, "json", false, "print JSON")
	return c
}

func examine(ctx context.Context, device string, hint verbs.GIDHint, planned *plannedRole) report {
	var r report
	checkProcessors(&r, cpus.Allowed(), cpus.Online())
	checkPriority(&r)
	checkSteering(&r)
	checkDiscard(&r)
	checkTUN(&r)
	checkMemlock(&r, checkCapabilities(&r))
	checkEncryption(&r)
	devices := chosenDevices(&r, device)
	for _, d := range devices {
		checkDevice(ctx, &r, d, hint, len(devices) > 1)
	}
	planned.examine(ctx, &r, devices)
	return r
}

// checkProcessors compares the processors that this process may use with those that
// are online.
func checkProcessors(r *report, allowed, online cpus.List) {
	if outside := online.Without(allowed); len(outside) > 0 {
		r.warn("processors", fmt.Sprintf("%v for this process, of %v; handlers can be bound to those only", allowed, online),
			"widen the mask if that is not meant: taskset(1), CPUAffinity= of the service, the container's cpuset")
		return
	}
	r.ok("processors", "%d (%v); each queue keeps up to two of them busy", len(allowed), allowed)
}

// checkEncryption reports which cipher sessions with --encrypt prefer here.
func checkEncryption(r *report) {
	first := seal.Ciphers()[0]
	if first == seal.ChaCha20Poly1305 {
		r.ok("encryption", "%s first: these processors have no instructions for AES (--encrypt)", first)
		return
	}
	r.ok("encryption", "%s first, by the processors' instructions for AES (--encrypt)", first)
}

// checkDiscard reports whether the kernel accepts the BPF program that drops whole datagrams.
func checkDiscard(r *report) {
	err := daemon.AsEndpoint(func() error {
		f, err := discard.New(discard.Config{Queues: 1, Length: tap.DefaultTxQueueLen})
		if err == nil {
			err = f.Close()
		}
		return err
	})
	if err != nil {
		r.warn("early discard", err.Error(),
			"AmbientCapabilities=CAP_BPF CAP_NET_ADMIN; without, an overload of long datagrams leaves only parts of them")
		return
	}
	r.ok("early discard", "whole datagrams are dropped before a queue is full")
}

func checkTUN(r *report) {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.missing("tun", "/dev/net/tun is missing", "modprobe tun (in a container, pass the device in)")
		return
	case errors.Is(err, os.ErrPermission):
		r.forbidden("tun", "/dev/net/tun: "+err.Error(), "run as root or with CAP_NET_ADMIN")
		return
	case err != nil:
		r.missing("tun", err.Error(), "modprobe tun")
		return
	}
	defer f.Close()
	features, err := unix.IoctlGetInt(int(f.Fd()), unix.TUNGETFEATURES)
	if err != nil || features&unix.IFF_VNET_HDR == 0 {
		r.warn("tun", "/dev/net/tun has no IFF_VNET_HDR",
			"set advanced.plain in the configuration file of the host; without offloads it is several times slower")
		return
	}
	r.ok("tun", "/dev/net/tun, with IFF_VNET_HDR%s",
		map[bool]string{true: " and several queues"}[features&unix.IFF_MULTI_QUEUE != 0])
}

// checkSteering reports whether the kernel can steer frames to the latency queue.
func checkSteering(r *report) {
	if err := daemon.AsEndpoint(func() error { return daemon.CanSteer(steer.DefaultClasses()) }); err != nil {
		r.warn("steering", err.Error(),
			"leave --latency-queue out, or give the service AmbientCapabilities=CAP_BPF CAP_NET_ADMIN")
		return
	}
	r.ok("steering", "latency-sensitive frames can have a queue of their own (--latency-queue)")
}

// checkPriority reports whether threads can have higher priorities than others.
func checkPriority(r *report) {
	err := messaging.Config{Handlers: []cq.Handler{{Number: 1, Priority: priorityClasses["latency"]}}}.Check()
	if err != nil {
		r.warn("priorities", "handlers cannot have priorities before others: CAP_SYS_NICE is missing",
			"give the service AmbientCapabilities=CAP_SYS_NICE if advanced.handler-priority is wanted")
		return
	}
	r.ok("priorities", "-20 (first) to 19 (last) can be given to handlers")
}

func checkCapabilities(r *report) (ipcLock bool) {
	has, err := daemon.Capabilities()
	if err != nil {
		r.warn("capabilities", err.Error(), "")
		return false
	}
	var missing []string
	for _, c := range []struct {
		name string
		bit  uint
	}{{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_IPC_LOCK", unix.CAP_IPC_LOCK}} {
		if !has(c.bit) {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		r.forbidden("capabilities", "missing "+strings.Join(missing, ", "),
			"run as root, or give the service AmbientCapabilities="+strings.Join(missing, " "))
	} else {
		r.ok("capabilities", "CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK")
	}
	return has(unix.CAP_IPC_LOCK)
}

// sessionMemory is the approximate size of the memory that a session with one queue registers at
// either end, in bytes.
const sessionMemory = 10 << 20

func checkMemlock(r *report, ipcLock bool) {
	limit, limited := verbs.MemlockLimit()
	switch {
	case !limited:
		r.ok("locked memory", "unlimited")
	case ipcLock:
		r.ok("locked memory", "the limit of %s does not bind a process with CAP_IPC_LOCK", units.Size(limit))
	case limit < sessionMemory:
		r.forbidden("locked memory", fmt.Sprintf("the limit is %s; a session registers about %s for each queue",
			units.Size(limit), units.Size(sessionMemory)),
			"LimitMEMLOCK=infinity in the service, `ulimit -l unlimited`, or CAP_IPC_LOCK")
	default:
		r.ok("locked memory", "%s, enough for about %s", units.Size(limit), render.Counted(limit/sessionMemory, "queue"))
	}
}

// checkDevice examines a device. If it is unsuitable, another one may be meant.
func checkDevice(ctx context.Context, r *report, info verbs.DeviceInfo, hint verbs.GIDHint, others bool) {
	name := info.Name
	dev, err := verbs.Open(name, verbs.WithGIDHint(hint))
	if errors.Is(err, fabric.ErrUnsupported) && others {
		r.warn(name, err.Error(), "")
		return
	}
	if err != nil {
		r.missing(name, err.Error(), "")
		return
	}
	defer dev.Close()
	a, limits := dev.Attr(), dev.Limits()
	netdevs, _ := verbs.NetdevOf(name) // none if the device has vanished meanwhile
	const none = "none"
	r.ok(name, "driver %s, firmware %s, libibverbs %s, netdevices %s, %d completion vectors, %d work requests per queue, "+
		"%d pieces per request", cmp.Or(info.Driver, none), cmp.Or(a.Firmware, none), cmp.Or(verbs.LibraryVersion(), none),
		cmp.Or(strings.Join(netdevs, " "), none), limits.CompVectors, limits.MaxQPWR, limits.MaxSGE)
	ports, err := dev.Ports()
	if err != nil {
		r.missing(name, err.Error(), "")
		return
	}
	for _, p := range ports {
		checkPort(r, name, info.Driver, p)
		classPlaces{config: "/etc/splitnic", proc: "/proc"}.check(r, name, info.Driver, p)
	}
	if gid, why, err := dev.ChooseGID(); err != nil {
		r.missing(name, err.Error(), "")
	} else {
		r.ok(name, "GID %s", why)
		port := ports[gid.Port-1]
		if i, err := net.InterfaceByName(gid.Netdev); err == nil && port.LinkLayer == verbs.LinkEthernet {
			checkRoom(r, name, gid, port, i.MTU)
		}
		checkPath(ctx, r, name, gid, port, hint.Peer)
	}
	windows, _ := conform.TryWindows(dev)
	if p, err := messaging.ChooseProtection("", windows); err != nil {
		r.missing(name, err.Error(), "")
	} else {
		r.ok(name, "protection: %s by default: %s; %s; --protection for another one", p.Name, p.Name.Description(), p.Why)
	}
	if err := device.Lacks(dev, fabric.RC); err != nil {
		r.missing(name, err.Error(), "")
		return
	}
	for _, m := range protocol.Modes() {
		if err := device.Carries(dev, m); err != nil {
			r.ok(name, "transfer modes: not %s: %v", m, err)
		}
	}
	if n, err := messaging.Inline(messaging.Config{Device: dev}); err != nil {
		r.missing(name, "queue pairs as sessions have: "+err.Error(), "")
	} else {
		r.ok(name, "inline data: up to %d bytes of %d (advanced.inline), as the device grants", n, messaging.DefaultInline)
	}
	if limits.Moderation {
		r.ok(name, "moderation: one event for up to %d completions or %v (advanced.cq-moderation)", a.ModerationCount,
			a.ModerationPeriod)
	} else {
		r.ok(name, "moderation: none; advanced.cq-moderation would have no effect")
	}
	queues := daemon.DefaultQueues(limits.CompVectors)
	r.ok(name, "queues: %d would be used by default", queues)
	r.ok(name, "handlers: %d of data would be used by default, one for each of %d completion vectors as far as there are "+
		"queues, and that of the control channel; advanced.handlers for others",
		min(max(limits.CompVectors, 1), queues), limits.CompVectors)
}
