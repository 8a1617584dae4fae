package daemon

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

var (
	descBuild = desc("splitnic_build_info", "1 for this program: its version, the revision of its sources, where that is "+
		"known, and the version of the protocol.", "version", "revision", "protocol", "goversion", "goarch")
	descSessions  = desc("splitnic_sessions_total", "Sessions established since the start.")
	descRefused   = desc("splitnic_refused_total", "Connections and hosts refused since the start.")
	descAttempts  = desc("splitnic_failed_attempts_total", "Sessions that ended or did not come about since the start.")
	descCarrier   = desc("splitnic_carrier", "1 while the netdevice has carrier.", "netdevice")
	descHostEnded = desc("splitnic_host_sessions_ended_total",
		"Sessions that ended because the I/O unit's key was trusted no longer, by reason.", "reason")
	descAdopted = desc("splitnic_netdevice_taken_over_total",
		"How many processes have taken the netdevice over from another since it was made.", "netdevice")
	descConnected = desc("splitnic_connected", "1 while there is a session with an I/O unit.")
	descCards     = desc("splitnic_agent_cards", "Cards of an agent by state: connecting, connected, or failed.", "state")
	descHosts     = desc("splitnic_hosts", "Hosts connected.")
)

func buildMetrics(emit emit, version string) {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	emit.gauge(descBuild, 1, version, revision, strconv.Itoa(protocol.Version), runtime.Version(),
		runtime.GOARCH)
}

// hostMetrics returns the handler for the metrics of a process with one card.
func hostMetrics(d *card) http.Handler {
	return cardHandler(func(emit emit) { buildMetrics(emit, d.cfg.Version) },
		func() map[string]func(emit) { return map[string]func(emit){d.name: d.samples} })
}

func (d *card) samples(emit emit) {
	s := d.host.Status()
	d.reloads.metrics(emit)
	emit.each(descHostEnded, host.Endings(), s.Ended)
	emit.gauge(descConnected, flag(s.State == host.Connected))
	emit.gauge(descCarrier, flag(s.Netdevice.Carrier), s.Netdevice.Name)
	emit.count(descAdopted, uint64(s.Netdevice.Adopted), s.Netdevice.Name)
	emit.count(descSessions, uint64(s.Sessions))
	emit.count(descAttempts, uint64(s.Attempts))
	deviceMetrics(emit, s.Device, s.DeviceState)
	dnsMetrics(emit, s.IOUnit.DNS)
	failoverMetrics(emit, &s.Failovers)
	hostDirectMetrics(emit, &s.Direct)
	if s.Traffic != nil {
		p := peer{name: s.IOUnit.Name, key: s.IOUnit.Fingerprint}
		if s.IOUnit.Insecure {
			p.key = ""
		}
		hostTraffic.emit(emit, p, s.Traffic)
	}
}

func iounitMetrics(u *iounit.Unit, r *reloader) http.Handler {
	series := newHostSeries()
	return handler(func(emit emit) {
		s := u.Status()
		buildMetrics(emit, s.Software)
		r.metrics(emit)
		emit.gauge(descHosts, float64(len(s.Hosts)))
		emit.count(descSessions, s.Sessions)
		emit.count(descRefused, s.Refused)
		deviceMetrics(emit, s.Device, s.DeviceState)
		unitMetrics(emit, &s)
		for i, p := range series.of(s.Hosts, time.Now()) {
			h := &s.Hosts[i]
			portMetrics(emit, p, h)
			if h.Traffic != nil {
				unitTraffic.emit(emit, p, h.Traffic)
			}
		}
	})
}
