package bench

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/protocol"
)

// The parameters of a measurement are among the features in the hello of its session. Each is
// "bench.NAME.VALUE". Their version is the first one. Unknown parameters must not be ignored: an end
// that does not know a parameter has another version, which is an error.
const (
	parameterPrefix  = "bench."
	parameterVersion = parameterPrefix + "version.2"
)

// errParameters is wrapped by the error about unknown parameters.
var errParameters = errors.New("use the same version of splitnic on both nodes")

// parameters returns all parameters, as flags, except the mode and the queues, which are fields of
// the hello. They have the values of s, which the flags set.
func (s *Spec) parameters(run *string) *pflag.FlagSet {
	f := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(run, "run", *run, "")
	f.StringVar((*string)(&s.Kind), "kind", string(s.Kind), "")
	f.IntVar(&s.Size, "size", s.Size, "")
	f.Uint64Var(&s.Iterations, "iterations", s.Iterations, "")
	f.Int64Var((*int64)(&s.Duration), "duration", int64(s.Duration), "")
	f.Uint64Var(&s.WarmUp, "warm-up", s.WarmUp, "")
	f.IntVar(&s.PostList, "post-list", s.PostList, "")
	f.IntVar(&s.TxDepth, "tx-depth", s.TxDepth, "")
	f.BoolVar(&s.Bidirectional, "bidirectional", s.Bidirectional, "")
	f.BoolVar(&s.Poll, "poll", s.Poll, "")
	f.BoolVar(&s.NoPack, "no-pack", s.NoPack, "")
	f.StringVar((*string)(&s.Protection), "protection", string(s.Protection), "")
	f.StringVar((*string)(&s.Cipher), "cipher", string(s.Cipher), "")
	return f
}

// encode returns the parameters of a measurement of a run, a feature for each that is not the
// default.
func (s *Spec) encode(run string) []string {
	w := []string{parameterVersion}
	s.parameters(&run).VisitAll(func(p *pflag.Flag) {
		if v := p.Value.String(); v != "" && v != "0" && v != "false" {
			w = append(w, parameterPrefix+p.Name+"."+v)
		}
	})
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
	parameters := s.parameters(&run)
	for _, f := range features {
		word, ours := strings.CutPrefix(f, parameterPrefix)
		if !ours || f == parameterVersion {
			continue // a feature of the protocol
		}
		name, value, _ := strings.Cut(word, ".")
		if parameters.Changed(name) {
			return s, "", fmt.Errorf("parameter %s is there twice: %w", name, errParameters)
		}
		if err := parameters.Set(name, value); err != nil {
			return s, "", fmt.Errorf("parameter %s: %w: %w", f, err, errParameters)
		}
	}
	if b, err := hex.DecodeString(run); err != nil || len(b) != runSize {
		return s, "", fmt.Errorf("no run among %q: %w", features, errParameters)
	}
	return s, run, s.Check()
}

// runSize is the size in bytes of the name of a run.
const runSize = 8
