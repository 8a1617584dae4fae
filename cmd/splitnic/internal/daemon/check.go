package daemon

import (
	"errors"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/scrape"
)

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
