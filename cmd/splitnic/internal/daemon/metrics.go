package daemon

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/splitnic/splitnic/cmd/internal/cards"
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

// buildMetrics emits the version of this program.
func buildMetrics(emit emit, version string) {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	emit(descBuild, prometheus.GaugeValue, 1, version, revision, strconv.Itoa(protocol.Version), runtime.Version(),
		runtime.GOARCH)
}

func hostMetrics(h *host.Host, r *reloader, version string) http.Handler {
	samples := hostSamples(h, r)
	return handler(func(emit emit) {
		buildMetrics(emit, version)
		samples(emit)
	})
}

// hostSamples returns the function that emits the metrics of a card.
func hostSamples(h *host.Host, r *reloader) func(emit) {
	return func(emit emit) {
		s := h.Status()
		r.metrics(emit)
		for _, reason := range host.Endings() {
			emit(descHostEnded, prometheus.CounterValue, float64(s.Ended[reason]), reason)
		}
		emit(descConnected, prometheus.GaugeValue, flag(s.State == host.Connected))
		emit(descCarrier, prometheus.GaugeValue, flag(s.Netdevice.Carrier), s.Netdevice.Name)
		emit(descAdopted, prometheus.CounterValue, float64(s.Netdevice.Adopted), s.Netdevice.Name)
		emit(descSessions, prometheus.CounterValue, float64(s.Sessions))
		emit(descAttempts, prometheus.CounterValue, float64(s.Attempts))
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
}

// agentMetrics returns the handler for the metrics of an agent and of its open cards. A card's
// metrics have a label with its name.
func agentMetrics(
	version string, reloaded func() ReloadStatus, states func() map[cards.State]int, present func() []*agentCard,
) http.Handler {
	var one sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reg := prometheus.NewRegistry()
		reg.MustRegister(collector{func(emit emit) {
			buildMetrics(emit, version)
			reloads := reloaded()
			reloads.metrics(emit)
			for state, n := range states() {
				emit(descCards, prometheus.GaugeValue, float64(n), string(state))
			}
		}}, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
		for _, c := range present() {
			labels := prometheus.Labels{"card": c.name}
			prometheus.WrapRegistererWith(labels, reg).MustRegister(collector{hostSamples(c.host, c.reloads)})
		}
		one.Lock()
		defer one.Unlock()
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

func iounitMetrics(u *iounit.Unit, r *reloader) http.Handler {
	series := newHostSeries()
	return handler(func(emit emit) {
		s := u.Status()
		buildMetrics(emit, s.Software)
		r.metrics(emit)
		emit(descHosts, prometheus.GaugeValue, float64(len(s.Hosts)))
		emit(descSessions, prometheus.CounterValue, float64(s.Sessions))
		emit(descRefused, prometheus.CounterValue, float64(s.Refused))
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
