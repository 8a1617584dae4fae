package daemon

import (
	"errors"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/scrape"
)

// Check reads the files that the sources name, as at a start, and returns the errors in them. If
// keys is false, it omits the private key and the certificate, which are on the machine that
// uses them.
func (s *Sources) Check(keys bool) error {
	k := s.Keys
	var errs []error
	switch {
	case k.Insecure:
	case keys:
		_, err := k.load()
		errs = append(errs, err)
	default:
		_, err := k.trust()
		errs = append(errs, err)
	}
	_, err := loadPolicy(s.Policy)
	return errors.Join(append(errs, err, scrape.Check(s.MetricsConfig))...)
}
