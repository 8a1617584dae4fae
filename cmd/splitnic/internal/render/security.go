package render

import (
	"fmt"
	"io"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
)

func printSecurity(w io.Writer, s *daemon.SecurityStatus) {
	if s.Platform != 0 {
		fmt.Fprintf(w, "  platform\t%v\n", s.Platform)
	}
	if s.Fingerprint != "" && !s.Insecure {
		fmt.Fprintf(w, "  key\t%s\n", s.Fingerprint)
		authorities := ""
		if s.Authorities {
			authorities = ", and whom the authorities trust"
		}
		fmt.Fprintf(w, "  trust\t%s%s; %s revoked\n", Counted(s.Keys, "key"), authorities, Counted(s.Revoked, "key"))
		if !s.Expires.IsZero() {
			not := ""
			if daemon.Untimely(&s.Standing, time.Now()) {
				not = ", NOT VALID NOW"
			}
			fmt.Fprintf(w, "  certificate\tfrom %s to %s%s\n", s.Begins.Local().Format(time.DateTime),
				s.Expires.Local().Format(time.DateTime), not)
		}
		if s.OwnRevoked {
			fmt.Fprintf(w, "  REVOKED\tthis side's own key is in its list of revoked keys\n")
		}
	}
	if r := s.Reload; !r.Last.IsZero() {
		result := "done"
		if r.Error != "" {
			result = "FAILED, everything stayed as it was: " + r.Error
		}
		fmt.Fprintf(w, "  last reload\t%v ago, %s\n", ago(r.Last), result)
	}
}
