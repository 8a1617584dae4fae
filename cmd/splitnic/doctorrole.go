package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/verbs"
	"github.com/splitnic/splitnic/vnet"
)

// plannedRole has the flags of `splitnic doctor` about the planned role of this machine.
type plannedRole struct {
	role, lan, netns string
	iounits          []string
}

// check returns an error for an unknown role, and for flags that do not belong to the role.
func (p *plannedRole) check() error {
	var errs mistakes
	if p.role != "" && !slices.Contains(endpointRoles, p.role) {
		errs.add("--role %q: must be host, agent or iounit", p.role)
	}
	if len(p.iounits) > 0 && p.role != "host" && p.role != "agent" {
		errs.add("--iounit is for --role host or agent")
	}
	errs = append(errs, checkUnits(p.iounits)...)
	if (p.lan != "" || p.netns != "") && p.role != "iounit" {
		errs.add("--lan and --netns are for --role iounit")
	}
	if p.lan != "" {
		if _, _, err := lan.ParseSpec(p.lan); err != nil {
			errs.add("--lan: %w", err)
		}
	}
	return errors.Join(errs...)
}

// examine checks what the role requires in addition to the requirements of every role.
func (p *plannedRole) examine(ctx context.Context, r *report, devices []verbs.DeviceInfo) {
	if p.role == "" {
		return
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		r.warn("kernel", err.Error(), "")
	} else {
		checkKernel(r, unix.ByteSliceToString(name.Release[:]))
	}
	checkIOMMU(r, "/sys")
	mtu := usualMTU
	if p.lan != "" {
		mtu = checkLAN(r, p.lan, p.netns)
	}
	if p.role == "iounit" {
		checkModule(r, p.lan, "/sys", "/lib/modules/"+unix.ByteSliceToString(name.Release[:]))
	}
	if p.role == "agent" {
		agentPlaces.check(ctx, r)
	}
	p.choose(r, devices)
	for _, d := range devices {
		checkFrames(r, d.Name, mtu)
	}
	for _, entry := range p.iounits {
		checkUnit(ctx, r, entry, new(discovery.Resolver).Lookup)
	}
}

// choose says that the role needs --device if there is more than one to choose from, as its start does.
// The cards of an agent have their own.
func (p *plannedRole) choose(r *report, devices []verbs.DeviceInfo) {
	if p.role == "agent" || len(devices) < 2 {
		return
	}
	r.missing("RDMA device", fmt.Sprintf("there are %d, and `splitnic %s` uses one", len(devices), p.role),
		"choose it, here and there: --device "+strings.Join(daemon.DeviceNames(devices), "|"))
}

// oldest is the oldest kernel on which everything is tested.
var oldest = [2]int{6, 1}

func checkKernel(r *report, release string) {
	var v [2]int
	if n, err := fmt.Sscanf(release, "%d.%d", &v[0], &v[1]); n != 2 {
		r.warn("kernel", fmt.Sprintf("Linux %s: %v", release, err), "")
		return
	}
	if slices.Compare(v[:], oldest[:]) < 0 {
		r.warn("kernel",
			fmt.Sprintf("Linux %s is older than %d.%d, the oldest that was tried", release, oldest[0], oldest[1]),
			"use a newer kernel; without BPF (Linux 5.8) there is no latency queue and no early discard")
		return
	}
	r.ok("kernel", "Linux %s", release)
}

// checkIOMMU reports whether an IOMMU limits the memory that devices can access. Neither answer
// is an error.
func checkIOMMU(r *report, sys string) {
	units, _ := filepath.Glob(sys + "/class/iommu/*")
	groups, _ := filepath.Glob(sys + "/kernel/iommu_groups/*")
	switch {
	case len(units) == 0:
		r.ok("IOMMU", "none in use: an adapter reaches all memory of this machine")
	case len(groups) == 0:
		r.ok("IOMMU", "there is one, and no device is behind it")
	default:
		types := map[string]int{}
		for _, g := range groups {
			if b, err := os.ReadFile(g + "/type"); err == nil {
				types[strings.TrimSpace(string(b))]++
			}
		}
		var words []string
		for name, n := range types {
			words = append(words, fmt.Sprintf("%s %d", name, n))
		}
		slices.Sort(words)
		r.ok("IOMMU", "%s of devices (%s); translation (DMA, DMA-FQ) costs an adapter time, identity does not",
			render.Counted(len(groups), "group"), cmp.Or(strings.Join(words, ", "), "none"))
	}
}

// usualMTU is the assumed MTU of a LAN about which nothing is known.
const usualMTU = 1500

// checkLAN checks the network card, and returns its MTU.
func checkLAN(r *report, spec, netns string) (mtu int) {
	mtu = usualMTU
	_, info, err := daemon.FindCard(spec, netns)
	if err != nil {
		if exit.Status(err) == exit.Permission {
			r.forbidden("network card", err.Error(), "run as root")
		} else {
			r.missing("network card", err.Error(), "ip -br link")
		}
		return mtu
	}
	speed := ""
	if info.Speed > 0 {
		speed = fmt.Sprintf(", %d Mbit/s", info.Speed)
	}
	found := fmt.Sprintf("%s, mtu %d%s", spec, info.MTU, speed)
	switch {
	case info.Up:
		r.ok("network card", "%s, up", found)
	case !info.SetUp:
		r.ok("network card", "%s, down; the I/O unit sets it up when it starts", found)
	default:
		r.warn("network card", found+", and its link is down", "hosts have no carrier until it is up: the cable, the switch")
	}
	if info.MTU > 0 {
		mtu = info.MTU
	}
	return mtu
}

// checkModule reports whether the kernel has the module that the kind of LAN interface needs, if it
// needs one. The kernel loads the module by itself.
func checkModule(r *report, spec, sys, modules string) {
	kind := lan.Default
	if spec != "" {
		var err error
		if kind, _, err = lan.ParseSpec(spec); err != nil {
			return
		}
	}
	module := kind.Facts().Module
	if module == "" {
		return
	}
	if _, err := os.Stat(sys + "/class/" + module); err == nil {
		r.ok(module, "there")
		return
	}
	known := false
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, err := os.ReadFile(filepath.Join(modules, list))
		known = known || err == nil
		if err == nil && strings.Contains(string(text), "/"+module+".ko") {
			r.ok(module, "will be loaded when the first host comes")
			return
		}
	}
	if !known {
		r.warn(module, "not loaded, and nobody knows whether it can be: "+modules+" is missing", "modprobe "+module)
		return
	}
	r.missing(module, "this kernel has no "+module+" in "+modules,
		"install the kernel's modules, or use --lan "+kind.Facts().Instead)
}

// checkFrames reports how many packets a full frame takes on the device's fabric.
func checkFrames(r *report, device string, mtu int) {
	dev, err := verbs.Open(device)
	if err != nil {
		return // the error is reported already
	}
	defer dev.Close()
	ports, err := dev.Ports()
	if err != nil {
		return
	}
	for _, p := range ports {
		if p.ActiveMTU > 0 {
			framesText(r, device, p.ActiveMTU, mtu)
		}
	}
}

func framesText(r *report, device string, fabric, mtu int) {
	size := mtu + vnet.EthLen + vnet.HdrLen
	r.ok(device, "a frame of %d bytes is %s of %d bytes on the fabric", size,
		render.Counted((size+fabric-1)/fabric, "packet"), fabric)
}

// mostReached is the maximum number of I/O units of a DNS name to connect to.
const mostReached = 8

// checkUnit connects to an I/O unit, or to the I/O units in the DNS records of a name.
func checkUnit(
	ctx context.Context, r *report, entry string, lookup func(context.Context, string) (discovery.Answer, error),
) {
	name, ok := discovery.ByDNS(entry)
	if !ok {
		checkReach(ctx, r, entry)
		return
	}
	answer, err := lookup(ctx, name)
	if err != nil {
		r.missing("DNS", err.Error(), "the servers in /etc/resolv.conf, and the zone: `dig SRV NAME`, `getent hosts NAME`")
		return
	}
	list := discovery.Order(daemon.Hostname()+".sn0", answer.Records)
	r.ok("DNS", "%s: %d SRV records of I/O units, %d of others, to live for %v", name, len(answer.Records), answer.Skipped,
		answer.TTL)
	for _, addr := range list[:min(len(list), mostReached)] {
		checkReach(ctx, r, addr)
	}
}

// reachTime is the time limit for an I/O unit to accept a connection.
const reachTime = 5 * time.Second

// checkReach connects to an I/O unit, which is also the first step of a host.
func checkReach(ctx context.Context, r *report, addr string) {
	addr = session.WithPort(addr)
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	started := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		fix := "a firewall, or the route: `ip route get`, `ping`"
		var dns *net.DNSError
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			fix = "start the I/O unit there, or name the port of its --listen"
		case errors.As(err, &dns) && strings.HasPrefix(dns.Name, "tcp/"):
			fix = "a port of 1 to 65535, or the name of a service of this machine"
		case errors.As(err, &dns):
			fix = "`getent hosts NAME`, or give its address"
		}
		r.missing("I/O unit", fmt.Sprintf("%s cannot be reached: %v", addr, err), fix)
		return
	}
	defer conn.Close()
	local, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		local = conn.LocalAddr().String()
	}
	r.ok("I/O unit", "%s accepts connections, from %s here, after %v", addr, local,
		time.Since(started).Round(100*time.Microsecond))
}
