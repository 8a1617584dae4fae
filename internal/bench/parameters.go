package bench

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// The parameters of a measurement are among the features in the hello of its session. Each is
// "bench.NAME.VALUE". Their version is the first one. Unknown parameters must not be ignored: an end
// that does not know a parameter has another version, which is an error.
const (
	parameterPrefix  = "bench."
	parameterVersion = parameterPrefix + "version.1"
)

// errParameters is wrapped by the error about unknown parameters.
var errParameters = errors.New("use the same version of splitnic on both nodes")

// parameter is a parameter of a Spec. get returns an empty string for the default.
type parameter struct {
	name string
	get  func(s *Spec) string
	set  func(s *Spec, v string) error
}

func number[T int | uint64 | time.Duration](name string, field func(s *Spec) *T) parameter {
	return parameter{
		name: name,
		get: func(s *Spec) string {
			if v := *field(s); v > 0 {
				return strconv.FormatUint(uint64(v), 10)
			}
			return ""
		},
		set: func(s *Spec, v string) error {
			n, err := strconv.ParseUint(v, 10, 62)
			*field(s) = T(n)
			return err
		},
	}
}

func yes(name string, field func(s *Spec) *bool) parameter {
	return parameter{
		name: name,
		get: func(s *Spec) string {
			if *field(s) {
				return "yes"
			}
			return ""
		},
		set: func(s *Spec, v string) error {
			*field(s) = v == "yes"
			if v != "yes" {
				return strconv.ErrSyntax
			}
			return nil
		},
	}
}

// parameters has all parameters except the mode and the queues, which are fields of the hello.
var parameters = []parameter{
	{"kind", func(s *Spec) string { return string(s.Kind) },
		func(s *Spec, v string) error { s.Kind = Kind(v); return nil }},
	number("size", func(s *Spec) *int { return &s.Size }),
	number("iterations", func(s *Spec) *uint64 { return &s.Iterations }),
	number("duration", func(s *Spec) *time.Duration { return &s.Duration }),
	number("warm-up", func(s *Spec) *uint64 { return &s.WarmUp }),
	number("post-list", func(s *Spec) *int { return &s.PostList }),
	number("tx-depth", func(s *Spec) *int { return &s.TxDepth }),
	yes("bidirectional", func(s *Spec) *bool { return &s.Bidirectional }),
	yes("poll", func(s *Spec) *bool { return &s.Poll }),
	yes("no-pack", func(s *Spec) *bool { return &s.NoPack }),
	{"protection", func(s *Spec) string { return string(s.Protection) },
		func(s *Spec, v string) error { s.Protection = messaging.Protection(v); return nil }},
}

// encode returns the parameters of a measurement of a run, a feature for each.
func (s *Spec) encode(run string) []string {
	w := []string{parameterVersion, parameterPrefix + "run." + run}
	for _, p := range parameters {
		if v := p.get(s); v != "" {
			w = append(w, parameterPrefix+p.name+"."+v)
		}
	}
	return w
}

// parseParameters is the inverse of encode. Its arguments are the features, modes and queues of a
// hello. The returned Spec is checked.
func parseParameters(features []string, modes []protocol.Mode, queues int) (s Spec, run string, err error) {
	if !slices.Contains(features, parameterVersion) {
		return s, "", fmt.Errorf("no %s among %q: %w", parameterVersion, features, errParameters)
	}
	if len(modes) != 1 {
		return s, "", fmt.Errorf("%d modes, must be one: %w", len(modes), errParameters)
	}
	s.Mode, s.Queues = modes[0], queues
	seen := map[string]bool{}
	for _, f := range features {
		word, ours := strings.CutPrefix(f, parameterPrefix)
		if !ours || f == parameterVersion {
			continue // a feature of the protocol
		}
		name, value, _ := strings.Cut(word, ".")
		if seen[name] {
			return s, "", fmt.Errorf("parameter %s is there twice: %w", name, errParameters)
		}
		seen[name] = true
		if name == "run" {
			if b, err := hex.DecodeString(value); err != nil || len(b) != runSize {
				return s, "", fmt.Errorf("parameter %s: %w", f, errParameters)
			}
			run = value
			continue
		}
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
		if i < 0 {
			return s, "", fmt.Errorf("parameter %s is not known here: %w", f, errParameters)
		}
		if err := parameters[i].set(&s, value); err != nil {
			return s, "", fmt.Errorf("parameter %s: %w", f, errParameters)
		}
	}
	if run == "" {
		return s, "", fmt.Errorf("no run among %q: %w", features, errParameters)
	}
	return s, run, s.Check()
}

// runSize is the size in bytes of the name of a run.
const runSize = 8
