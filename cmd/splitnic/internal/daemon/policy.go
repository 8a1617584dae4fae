package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/scrape"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// loadPolicy reads the file of --policy. It returns the default policy if path is empty.
func loadPolicy(path string) (*policy.Policy, error) {
	if path == "" {
		return policy.Default(), nil
	}
	p, err := policy.Load(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("--policy: %w", err) // not an error in its content
	case err != nil:
		return nil, each(err, func(err error) error { return exit.Usagef("--policy: %w", err) })
	}
	return p, nil
}

// each applies wrap to err or, if err has joined errors, to each of them.
func each(err error, wrap func(error) error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return wrap(err)
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		errs = append(errs, wrap(err))
	}
	return errors.Join(errs...)
}

// unknownHosts returns the entries of a policy that apply to no host, except those that only
// reserve addresses. knows reports whether a host with a name or fingerprint can be trusted.
func unknownHosts(p *policy.Policy, knows func(who string) bool) (unknown []policy.Entry) {
	for _, e := range p.Entries() {
		if !e.Keeps && !knows(e.Key) {
			unknown = append(unknown, e)
		}
	}
	return unknown
}

// complainOfUnknown logs the unknownHosts, unless hosts are not authenticated.
func complainOfUnknown(log *slog.Logger, p *policy.Policy, s *session.Security) {
	if s.Standing().Insecure {
		return
	}
	for _, e := range unknownHosts(p, s.Knows) {
		log.Warn("the policy has an entry for a host that nobody is trusted as; the default is in force for whoever is meant",
			"host", e.Key, "line", e.Line)
	}
}

// Warnings returns probable mistakes in files in which Check has found no errors.
func (s *Sources) Warnings() (lines []string) {
	trust, err := s.Keys.trust()
	rules, policyErr := loadPolicy(s.Policy)
	if err != nil || policyErr != nil || s.Keys.Insecure {
		return nil
	}
	for _, e := range unknownHosts(rules, trust.Knows) {
		lines = append(lines, fmt.Sprintf("%s:%d: warning: host %s: nobody is trusted as this; "+
			"list its key with --trust or in --trust-file, or correct the entry", s.Policy, e.Line, e.Key))
	}
	return lines
}

// Check reads the files that the sources name, as at a start, and returns the errors in them. A
// certificate that peers will reject is an error here, and a warning at a start. If
// keys is false, it omits the private key and the certificate, which are on the machine that
// uses them.
func (s *Sources) Check(keys bool) error {
	k := s.Keys
	var errs []error
	switch {
	case k.Insecure:
	case keys:
		security, err := k.load()
		errs = append(errs, err)
		if err == nil {
			errs = append(errs, security.Problems(s.IOUnit)...)
		}
	default:
		_, err := k.trust()
		errs = append(errs, err)
	}
	_, err := loadPolicy(s.Policy)
	return errors.Join(append(errs, err, scrape.Check(s.MetricsConfig))...)
}
