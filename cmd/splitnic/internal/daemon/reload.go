package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/journal"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// reloader reloads the identity, the trust and the policy of a running endpoint. It reads the
// files that Sources names, and the names of these files if they are in the configuration file.
// It reads everything before it changes anything: if one of the files has an error, nothing
// changes.
type reloader struct {
	reread   func() (Sources, []string, error)
	file     string // the configuration file
	security *session.Security
	policy   func(*policy.Policy) int // applies a policy, and returns the number of sessions ended by it; nil for a host
	log      *slog.Logger
	tell     func(state string) // tells the service manager

	doing sync.Mutex   // held during a reload: one at a time
	mu    sync.Mutex   // guards the fields below
	last  ReloadStatus // of all reloads so far
}

// ReloadStatus is what `splitnic status` shows about reloads.
type ReloadStatus struct {
	Done   uint64    `json:"done"`
	Failed uint64    `json:"failed"`
	Last   time.Time `json:"last,omitzero"`
	Error  string    `json:"error,omitempty"` // of the last reload
}

func (s *ReloadStatus) add(err error) {
	s.Last, s.Error = time.Now(), ""
	if err != nil {
		s.Failed++
		s.Error = err.Error()
		return
	}
	s.Done++
}

// SecurityStatus is what `splitnic status` shows about keys.
type SecurityStatus struct {
	Fingerprint string `json:"fingerprint"` // of this side's key
	// Platform is the identifier of this process for peers that have an identifier, too.
	Platform protocol.Platform `json:"platform"`
	session.Standing
	Reload ReloadStatus `json:"reload"`
}

// newReloader returns a reloader, and logs probable mistakes in the keys in force.
func newReloader(
	reread func() (Sources, []string, error), file string, s *session.Security, setPolicy func(*policy.Policy) int,
	log *slog.Logger,
) *reloader {
	r := &reloader{reread: reread, file: file, security: s, policy: setPolicy, log: log, tell: notify}
	r.complain()
	return r
}

// start makes SIGHUP reload until stop is called.
func (r *reloader) start(ctx context.Context) (stop func()) {
	return onHangup(ctx, func() { _, _ = r.reload() }) // an error is logged, and in the status
}

// onHangup calls reload at each SIGHUP from now on, until stop is called.
func onHangup(ctx context.Context, reload func()) (stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			select {
			case <-hup:
				reload()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(hup)
		cancel()
		worker.Wait()
	}
}

// Reloaded is the answer to CommandReload.
type Reloaded struct {
	Fingerprint string `json:"fingerprint"`
	Ended       int    `json:"ended"` // number of sessions
	// Cards has the status sockets of an agent's cards, whose keys were reloaded with the
	// agent's.
	Cards []string `json:"cards,omitempty"`
	// Late has the other keys of the configuration file whose values have changed. They require
	// a restart.
	Late []string `json:"late,omitempty"`
}

// reload reloads, and reports to systemd, the log and the status.
func (r *reloader) reload() (Reloaded, error) {
	r.doing.Lock()
	defer r.doing.Unlock()
	defer announceReload(r.tell)()
	done, err := r.apply()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.add(err)
	if err != nil {
		r.log.Error("reload failed; everything stays as it was", "error", err)
		return done, err
	}
	r.log.Info("reloaded", "key", done.Fingerprint, "sessions_ended", done.Ended)
	r.complain()
	return done, nil
}

// announceReload tells the service manager that a reload begins. done tells it that the reload
// is over.
func announceReload(tell func(string)) (done func()) {
	// Type=notify-reload requires the time of the beginning (sd_notify(3)).
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
	return func() { tell("READY=1") }
}

// complain logs what is probably a mistake in the keys in force.
func (r *reloader) complain() {
	s := r.security.Standing()
	if s.OwnRevoked {
		r.log.Warn("this side's own key is among the revoked ones; make another one with `splitnic keygen`",
			"key", r.security.Fingerprint())
	}
	for _, err := range r.security.Problems(r.policy != nil) {
		r.log.Warn("peers and this side will not trust each other", "error", err)
	}
}

// Untimely reports whether this side has a certificate that is not valid at time now.
func Untimely(s *session.Standing, now time.Time) bool {
	return !s.Expires.IsZero() && (now.Before(s.Begins) || now.After(s.Expires))
}

// apply is reload without the reports.
func (r *reloader) apply() (Reloaded, error) {
	sources, late, err := r.reread()
	if err != nil {
		return Reloaded{}, err
	}
	security, err := sources.Keys.load()
	if err != nil {
		return Reloaded{}, err
	}
	rules, err := loadPolicy(sources.Policy)
	if err != nil {
		return Reloaded{}, err
	}
	journal.Level.Set(sources.LogLevel)
	done := Reloaded{Late: late}
	if !r.security.Standing().Insecure || !sources.Keys.Insecure { // otherwise there is nothing to change
		if done.Ended, err = r.security.Update(security); err != nil {
			return Reloaded{}, err
		}
	}
	if r.policy != nil {
		done.Ended += r.policy(rules)
		complainOfUnknown(r.log, rules, r.security)
	}
	done.Fingerprint = r.security.Fingerprint().String()
	if len(late) > 0 {
		r.log.Warn("these have changed in the configuration file and need a restart", "keys", strings.Join(late, ", "),
			"file", r.file)
	}
	return done, nil
}

// status returns what `splitnic status` shows about keys.
func (r *reloader) status() SecurityStatus {
	s := SecurityStatus{Standing: r.security.Standing()}
	s.Fingerprint, s.Platform = s.Standing.Fingerprint.String(), r.security.Platform()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reload = r.last
	return s
}

var (
	descReloads = desc("splitnic_reloads_total", "Reloads of keys, trust and policy, by result.", "result")
	descExpires = desc("splitnic_certificate_expiry_seconds",
		"When this side's certificate expires, in seconds since 1970; missing if no authority has issued it.")
	descTrusted = desc("splitnic_keys", "Keys that are listed, as trusted or as revoked.", "as")
)

func (s *ReloadStatus) metrics(emit emit) {
	emit.count(descReloads, s.Done, "done")
	emit.count(descReloads, s.Failed, "failed")
}

func (r *reloader) metrics(emit emit) {
	s := r.status()
	s.Reload.metrics(emit)
	emit.gauge(descTrusted, float64(s.Keys), "trusted")
	emit.gauge(descTrusted, float64(s.Revoked), "revoked")
	if !s.Expires.IsZero() {
		emit.gauge(descExpires, float64(s.Expires.Unix()))
	}
}

func (r *reloader) command() statussock.Command {
	return statussock.Command{Name: CommandReload, Run: func(context.Context) (any, error) { return r.reload() }}
}
