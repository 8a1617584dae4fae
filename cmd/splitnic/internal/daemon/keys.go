package daemon

import (
	"errors"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Keys is the configuration of this side's identity, and of the peers that it trusts.
type Keys struct {
	Key, Cert, CA, TrustFile, Revoked string   // files
	Trust                             []string // entries
	IOUnitNames                       []string
	Insecure                          bool
}

// Check returns an error for settings that are invalid whatever the files contain.
func (k *Keys) Check() error {
	if !k.Insecure {
		_, err := k.entries()
		return err
	}
	if len(k.Trust) > 0 || k.TrustFile != "" || k.CA != "" || k.Cert != "" || k.Revoked != "" || len(k.IOUnitNames) > 0 {
		return exit.Usagef("--insecure does without keys: leave out --trust, --trust-file, --ca, --cert, --revoked and " +
			"--iounit-name, or leave out --insecure")
	}
	return nil
}

// entries returns the part of the trust that does not come from files.
func (k *Keys) entries() (*session.Trust, error) {
	trust := &session.Trust{}
	var errs []error
	for i, entry := range k.Trust {
		switch err := trust.Add(entry); {
		case err == nil:
		case len(k.Trust) > 1:
			errs = append(errs, exit.Usagef("--trust: number %d of %d: %w", i+1, len(k.Trust), err))
		default:
			errs = append(errs, exit.Usagef("--trust: %w", err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(k.IOUnitNames) > 0 && k.CA == "" {
		return nil, exit.Usagef("--iounit-name needs certificates: name their authority with --ca")
	}
	if err := trust.Expect(k.IOUnitNames...); err != nil {
		return nil, exit.Usagef("--iounit-name: %w", err)
	}
	return trust, nil
}

// load reads the files. If Insecure is set, it needs none.
func (k *Keys) load() (*session.Security, error) {
	if err := k.Check(); err != nil {
		return nil, err
	}
	if k.Insecure {
		return session.Insecure()
	}
	security, err := k.read()
	var usage exit.Error
	if err != nil && !errors.As(err, &usage) {
		err = exit.With(exit.Keys, err)
	}
	return security, err
}

func (k *Keys) read() (*session.Security, error) {
	key, keyErr := session.LoadKey(k.Key)
	trust, err := k.trust()
	if err = errors.Join(keyErr, err); err != nil {
		return nil, err
	}
	return session.NewSecurity(key, k.Cert, trust)
}

// trust returns the trust of this side. It reads the files with trusted keys, authorities and
// revoked keys.
func (k *Keys) trust() (*session.Trust, error) {
	trust, err := k.entries()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, file := range []struct {
		path string
		add  func(string) error
	}{{k.TrustFile, trust.AddFile}, {k.CA, trust.AddCA}, {k.Revoked, trust.AddRevoked}} {
		if file.path == "" {
			continue
		}
		errs = append(errs, file.add(file.path))
	}
	return trust, errors.Join(errs...)
}
