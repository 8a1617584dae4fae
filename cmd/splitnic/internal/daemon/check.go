package daemon

import (
	"errors"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/scrape"
)

// Check reads the files that the sources name as a start does, and returns what is wrong
// with them. Without keys it leaves out the private key and the certificate, which are
// where they are used.
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
