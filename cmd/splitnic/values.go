package main

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/settings"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// value is the value of a flag that is of no type of pflag. It implements pflag.Value.
type value struct {
	kind string // what help calls it
	set  func(string) error
	text func() string
}

func (v value) Set(s string) error { return v.set(s) }
func (v value) String() string     { return v.text() }
func (v value) Type() string       { return v.kind }

// boolValue is the value of a flag that is on or off. It accepts the same words as configuration
// files.
type boolValue struct{ value }

// IsBoolFlag makes help omit a default of off.
func (boolValue) IsBoolFlag() bool { return true }

func boolVar(f *pflag.FlagSet, p *bool, name string, on bool, usage string) {
	boolVarP(f, p, name, "", on, usage)
}

func boolVarP(f *pflag.FlagSet, p *bool, name, letter string, on bool, usage string) {
	*p = on
	v := boolValue{value{"bool", func(s string) (err error) {
		*p, err = settings.Bool(s)
		return err
	}, func() string { return strconv.FormatBool(*p) }}}
	f.VarPF(v, name, letter, usage).NoOptDefVal = "true"
}

func moderationValue(m *messaging.Moderation) value {
	set := func(s string) error {
		count, period, ok := strings.Cut(s, ",")
		if !ok {
			return fmt.Errorf("%q: must be a number of completions and a time, such as 16,50us", s)
		}
		var read messaging.Moderation
		var err error
		if read.Count, err = strconv.Atoi(strings.TrimSpace(count)); err != nil {
			return fmt.Errorf("%q is no number of completions", count)
		}
		if read.Period, err = time.ParseDuration(strings.TrimSpace(period)); err != nil {
			return badDuration(period)
		}
		if err := read.Check(); err != nil {
			return err
		}
		*m = read
		return nil
	}
	return value{"COUNT,PERIOD", set, func() string {
		if *m == (messaging.Moderation{}) {
			return ""
		}
		return fmt.Sprintf("%d,%v", m.Count, m.Period)
	}}
}

func addPackCopy(f *pflag.FlagSet, p *int) {
	*p = messaging.DefaultPackCopy
	f.Var(packCopyValue(p), "pack-copy",
		"copy a frame of up to this many bytes behind the one before it in its pack; 0: the adapter gathers all frames "+
			"of a pack from their send slots")
}

func packCopyValue(p *int) value { return sizeValue(p, messaging.MaxPackCopy) }

func addInline(f *pflag.FlagSet, p *int) {
	*p = messaging.DefaultInline
	f.Var(inlineValue(p), "inline",
		"hand transfers of up to this many bytes to the adapter inline, as far as it grants that, which splitnic doctor "+
			"and status show; 0: none")
}

func inlineValue(p *int) value { return sizeValue(p, messaging.LargestInline) }

// sizeValue is the value of a flag that sets a size in a messaging.Config, where 0 means the
// default and a negative number none.
func sizeValue(p *int, largest int) value {
	set := func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > largest {
			return fmt.Errorf("%q: must be 0 to %d bytes", s, largest)
		}
		if *p = n; n == 0 {
			*p = -1
		}
		return nil
	}
	return value{"BYTES", set, func() string { return strconv.Itoa(max(*p, 0)) }}
}

// rangeValue is the value of a flag that is a number in a range. A default outside of the range
// means that there is none.
func rangeValue(p *int, least, most int, kind string) value {
	set := func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q: must be %d to %d", s, least, most)
		}
		*p = n
		return nil
	}
	return value{kind, set, func() string {
		if *p < least {
			return ""
		}
		return strconv.Itoa(*p)
	}}
}

// pkeyValue is the value of --pkey.
func pkeyValue(p *uint16) value {
	set := func(s string) error {
		key, err := strconv.ParseUint(s, 0, 16)
		if err != nil || key&0x7fff == 0 { // such a key names no partition
			return fmt.Errorf("%q: must be 0x0001 to 0xffff, and not 0x8000", s)
		}
		*p = uint16(key)
		return nil
	}
	return value{"KEY", set, func() string {
		if *p == 0 {
			return ""
		}
		return fmt.Sprintf("%#04x", *p)
	}}
}

func levelValue(level *slog.Level) value {
	set := func(s string) error {
		if level.UnmarshalText([]byte(s)) != nil {
			return fmt.Errorf("%q must be debug, info, warn or error", s)
		}
		return nil
	}
	return value{"LEVEL", set, func() string { return strings.ToLower(level.String()) }}
}

// words returns values as they are written in flags.
func words[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// modeNames returns the names of the transfer modes in flags.
func modeNames() []string { return words(protocol.Modes()) }

func parseModes(flag string, names []string) ([]protocol.Mode, error) {
	var modes []protocol.Mode
	for _, name := range names {
		m, err := protocol.ParseMode(name)
		if err == nil && slices.Contains(modes, m) {
			err = fmt.Errorf("duplicate mode %s", m)
		}
		if err != nil {
			return nil, exit.Usagef("%s: %w", flag, err)
		}
		modes = append(modes, m)
	}
	if len(modes) == 0 {
		return nil, exit.Usagef("%s: empty list of modes; omit the flag for the default", flag)
	}
	return modes, nil
}

func addOrdering(f *pflag.FlagSet, strict *bool) {
	boolVar(f, strict, "strict-ordering", false, "have the adapter write to the memory that is lent in order; otherwise, "+
		"where no windows are around it (--protection region, modes send and send-uc), data may arrive in any order until "+
		"the transfer completes, which some machines need for full throughput (IBV_ACCESS_RELAXED_ORDERING)")
}

func addEncrypt(f *pflag.FlagSet, w *seal.Wish) {
	*w = seal.Allowed
	set := func(s string) error {
		read, err := seal.ParseWish(s)
		if err == nil {
			*w = read
		}
		return err
	}
	f.Var(value{"WISH", set, func() string { return string(*w) }}, "encrypt",
		"encrypt and authenticate all frames on the fabric: required; allowed, if the peer requires it; or no")
}

func addCiphers(f *pflag.FlagSet, some *[]seal.Cipher) {
	set := func(s string) error {
		read, err := seal.ParseCiphers(s)
		if err == nil {
			*some = read
		}
		return err
	}
	f.Var(value{"strings", set, func() string { return seal.Names(*some) }}, "ciphers",
		"ciphers of --encrypt in order of preference: some of "+seal.Names(seal.Ciphers())+
			" (default: all, AES first where the processors have instructions for it)")
}

func addProtection(f *pflag.FlagSet, p *string) {
	f.StringVar(p, "protection", "", "what bounds the writes of the peer to the memory that it is lent: "+
		protectionNames()+" (default: window where the device enforces the bounds of memory windows, else region)")
}

// parseProtection parses the value of --protection, which is empty for the default.
func parseProtection(name string) (messaging.Protection, error) {
	if name == "" {
		return "", nil
	}
	p, err := messaging.ParseProtection(name)
	if err != nil {
		return "", exit.Usagef("--protection %q: must be %s", name, protectionNames())
	}
	return p, nil
}

// protectionNames returns the values of --protection as a text.
func protectionNames() string {
	names := words(messaging.Protections())
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// numbered is a value for something that has a number, such as a handler.
type numbered struct {
	number int
	value  string
}

// parseNumbered parses NUMBER=VALUE,NUMBER=VALUE…, where a value may contain commas. It returns
// nil if text contains no "=".
func parseNumbered(text string) ([]numbered, error) {
	if !strings.Contains(text, "=") {
		return nil, nil
	}
	var all []numbered
	for part := range strings.SplitSeq(text, ",") {
		number, value, isNew := strings.Cut(part, "=")
		switch {
		case !isNew && len(all) == 0:
			return nil, fmt.Errorf("%q has no number: must be NUMBER=%s", part, part)
		case !isNew:
			all[len(all)-1].value += "," + part
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no number: must be NUMBER=VALUE, such as 1=%s", number, value)
		}
		if slices.ContainsFunc(all, func(x numbered) bool { return x.number == n }) {
			return nil, fmt.Errorf("duplicate number %d", n)
		}
		all = append(all, numbered{n, value})
	}
	return all, nil
}

// priorityClasses has the priorities with a name.
var priorityClasses = map[string]int{"normal": 0, "latency": -10}

func parsePriority(text string) (int, error) {
	if n, ok := priorityClasses[text]; ok {
		return n, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no priority: must be -20 (first) to 19 (last), latency or normal", text)
	}
	return n, nil
}

// mistakes has the errors in a configuration. Elements that are nil do not count.
type mistakes []error

func (m *mistakes) add(format string, args ...any) { *m = append(*m, exit.Usagef(format, args...)) }

func between(flag string, n, least, most int, otherwise string) error {
	if n < least || n > most {
		return exit.Usagef("%s %d: must be %d to %d%s", flag, n, least, most, otherwise)
	}
	return nil
}

func positive(flag string, d time.Duration) error {
	if d <= 0 {
		return exit.Usagef("%s %v: must be above 0", flag, d)
	}
	return nil
}

// canListen reports whether addr can be an address to listen on, with a port. It does not check
// whether this machine has the address.
func canListen(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.Contains(host, "*") { // that of other programs for all addresses
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err == nil {
		return true
	}
	return strings.Trim(port, "-0123456789") != "" // the name of a service
}

// atMost returns the check of the arguments for commands with at most n of them.
func atMost(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return exit.Usagef("unexpected argument %q%s; see `%s --help`", args[n], meant(c, args[n]), c.CommandPath())
		}
		return nil
	}
}

// parseSpin parses a duration, auto, or auto with the longest time, such as auto:50us.
func parseSpin(text string) (spin time.Duration, adaptive bool, err error) {
	if text == "auto" {
		return cq.AdaptiveSpin, true, nil
	}
	text, adaptive = strings.CutPrefix(text, "auto:")
	spin, err = time.ParseDuration(text)
	if err != nil {
		return 0, false, fmt.Errorf("%q: must be a time such as 20us, auto, or auto with the longest time, such as auto:50us",
			text)
	}
	least := time.Duration(0)
	if adaptive {
		least = time.Microsecond
	}
	if spin < least || spin > cq.MaxSpin {
		return 0, false, fmt.Errorf("%v: must be %v to %v", spin, least, cq.MaxSpin)
	}
	return spin, adaptive, nil
}

// spinValue is the value of advanced.spin: how long to poll before sleeping, or auto.
func spinValue(spin *time.Duration, adaptive *bool) value {
	set := func(s string) (err error) {
		*spin, *adaptive, err = parseSpin(s)
		return err
	}
	return value{"DURATION", set, func() string {
		switch {
		case *spin == 0:
			return ""
		case *adaptive:
			return "auto:" + spin.String()
		}
		return spin.String()
	}}
}
