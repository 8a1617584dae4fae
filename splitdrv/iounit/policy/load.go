package policy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/internal/bom"
	"github.com/splitnic/splitnic/internal/settings"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Load reads a policy file. A file with nothing but comments is an error. The error names the
// file and the line of each mistake.
func Load(path string) (*Policy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	// A truncated file, or one whose lines are all commented out, must not allow everything.
	if empty(text) {
		return nil, fmt.Errorf("%s: empty policy; use `default: {}` for the defaults", path)
	}
	return Parse(path, text)
}

// empty reports whether a file has nothing but comments.
func empty(text []byte) bool {
	text, err := bom.Cut(text)
	if err != nil {
		return false // Parse returns the error
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// Parse is Load for the text of the file with this name. The text may be empty.
func Parse(name string, text []byte) (*Policy, error) {
	body, err := settings.Parse(name, text)
	if err != nil {
		return nil, err
	}
	r, p := reader{file: name}, Default()
	r.policy(p, body)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return p, nil
}

// reader reads the policy from a parsed file, and collects the errors.
type reader struct {
	file string
	errs []error
}

func (r *reader) fail(n settings.Node, format string, args ...any) {
	r.errs = append(r.errs, settings.Errorf(r.file, n, format, args...))
}

// pairs returns the entries of a map, or none for an empty value.
func (r *reader) pairs(n settings.Node, what string) []settings.Entry {
	entries, ok := settings.Map(n)
	if !ok {
		r.fail(n, "%s must be a map, lines of the form `key: value`", what)
	}
	return entries
}

func (r *reader) policy(p *Policy, n settings.Node) {
	top := r.pairs(n, "a policy")
	// Read the default first, wherever it is in the file: the hosts inherit from it.
	for _, e := range top {
		if e.Key == "default" {
			r.host(&p.def, e.Value, "default", "")
		}
	}
	p.hosts = make(map[string]*Host)
	for _, e := range top {
		switch e.Key {
		case "default":
		case "hosts":
			for _, e := range r.pairs(e.Value, "hosts") {
				r.entry(p, e)
			}
		default:
			r.fail(e.At, "%w", &settings.UnknownKeyError{Key: e.Key, Known: []string{"default", "hosts"}})
		}
	}
	names := newReserved(p.hosts)
	p.def.reserved = names
	for key, h := range p.hosts {
		h.entry, h.reserved = "", names
		if names != nil {
			h.entry = key
		}
	}
}

func (r *reader) entry(p *Policy, e settings.Entry) {
	key := e.Key
	if f, err := session.ParseFingerprint(key); err == nil {
		key = f.String()
	} else if strings.HasPrefix(key, "sha256:") {
		r.fail(e.At, "host %q: %v", key, err)
	} else if !session.ValidName(key) {
		r.fail(e.At, "host %q: must be the name of a trust entry or a fingerprint such as sha256:…", key)
	}
	if p.hosts[key] != nil {
		r.fail(e.At, "host %q: there is an entry for it already; join them", key)
	}
	h := p.def
	r.host(&h, e.Value, "host "+e.Key, key)
	p.hosts[key] = &h
	p.entries = append(p.entries, Entry{Key: key, Line: settings.Line(e.At), Keeps: keepsOnly(e.Value)})
}

// keepsOnly reports whether an entry has the key macs only.
func keepsOnly(n settings.Node) bool {
	settings, _ := settings.Map(n)
	return len(settings) == 1 && settings[0].Key == "macs"
}

// setting is a key of a host, and what reads its value into the host.
type setting struct {
	key  string
	read func(h *Host, n settings.Node) error
}

// hostSettings has the keys in the order in which errors name them.
var hostSettings = []setting{
	{"macs", macs},
	{"share", share},
	{"ips", ips},
	{"vlans", vlans},
	{"untagged", of(func(h *Host) *bool { return &h.TaggedOnly }, no)},
	{"nested-tags", of(func(h *Host) *bool { return &h.SingleTag }, no)},
	{"link-control", of(func(h *Host) *bool { return &h.LinkControl }, settings.Bool)},
	{"promiscuous", of(func(h *Host) *bool { return &h.Promiscuous }, settings.Bool)},
	{"encrypt", of(func(h *Host) *seal.Wish { return &h.Encrypt }, seal.ParseWish)},
	{"require-bind", of(func(h *Host) *bool { return &h.RequireBind }, settings.Bool)},
	{"direct", direct},
	{"modes", modes},
	{"max-macs", of(func(h *Host) *int { return &h.MaxMACs }, maxMACs)},
	{"max-queues", of(func(h *Host) *int { return &h.MaxQueues }, number)},
	{"max-sessions", of(func(h *Host) *int { return &h.MaxSessions }, number)},
	{"max-memory", of(func(h *Host) *int64 { return &h.MaxMemory }, memory)},
	{"max-tx-rate", of(func(h *Host) *int64 { return &h.MaxTxRate }, unlimitedOr(parseRate))},
	{"max-rx-rate", of(func(h *Host) *int64 { return &h.MaxRxRate }, unlimitedOr(parseRate))},
	{"max-tx-pps", of(func(h *Host) *int64 { return &h.MaxTxPPS }, unlimitedOr(parsePPS))},
	{"max-rx-pps", of(func(h *Host) *int64 { return &h.MaxRxPPS }, unlimitedOr(parsePPS))},
	{"max-tx-group-pps", of(func(h *Host) *int64 { return &h.MaxTxGroupPPS }, unlimitedOr(parsePPS))},
}

func keys() []string {
	all := make([]string, len(hostSettings))
	for i, s := range hostSettings {
		all[i] = s.key
	}
	return all
}

// host reads the settings of one host into h, which has the values of missing settings. entry
// is the key of the host's entry, or "" for the default.
func (r *reader) host(h *Host, n settings.Node, what, entry string) {
	for _, e := range r.pairs(n, what) {
		i := slices.IndexFunc(hostSettings, func(s setting) bool { return s.key == e.Key })
		if i < 0 {
			r.fail(e.At, "%s: %w", what, &settings.UnknownKeyError{Key: e.Key, Known: keys()})
			continue
		}
		if e.Key == "macs" {
			h.entry = entry
		}
		if err := hostSettings[i].read(h, e.Value); err != nil {
			r.fail(e.Value, "%s: %s: %v", what, e.Key, err)
		}
	}
}

// of returns a function that parses a word into a field of a host.
func of[T any](field func(*Host) *T, parse func(string) (T, error)) func(*Host, settings.Node) error {
	return func(h *Host, n settings.Node) error {
		v, err := parse(settings.Scalar(n))
		if err == nil {
			*field(h) = v
		}
		return err
	}
}

// macs reads `any`, or a list of addresses, prefixes and `own`.
func macs(h *Host, n settings.Node) error {
	words, err := settings.Scalars(n)
	if err != nil {
		return err
	}
	h.AnyMAC, h.OwnMAC, h.MACs = false, false, nil
	if slices.Equal(words, []string{"any"}) {
		h.AnyMAC, h.OwnMAC = true, true
		return nil
	}
	for _, w := range words {
		if w == "own" {
			h.OwnMAC = true
			continue
		}
		p, err := ParsePattern(w)
		if err != nil {
			return fmt.Errorf("%w; use own, any, addresses such as 02:aa:00:00:00:01, or prefixes such as 02:aa:*", err)
		}
		h.MACs = append(h.MACs, p)
	}
	return nil
}

// share reads the word of a group of hosts, or `none`.
func share(h *Host, n settings.Node) error {
	w := settings.Scalar(n)
	if !session.ValidName(w) {
		return fmt.Errorf("%q must be a word such as bond1, the same one for all who share, or none", w)
	}
	if h.Share = w; w == "none" {
		h.Share = ""
	}
	return nil
}

// ips reads `any`, or a list of IP addresses and prefixes.
func ips(h *Host, n settings.Node) error {
	words, err := settings.Scalars(n)
	if err != nil {
		return err
	}
	h.IPs = nil
	if slices.Equal(words, []string{"any"}) {
		return nil
	}
	for _, w := range words {
		p, err := ParseIPs(w)
		if err != nil {
			return err
		}
		h.IPs = append(h.IPs, p)
	}
	return nil
}

func vlans(h *Host, n settings.Node) error {
	words, err := settings.Scalars(n)
	if err == nil {
		h.VLANs, err = protocol.ParseVLANs(strings.Join(words, ","))
	}
	if err != nil {
		return fmt.Errorf("%w; use all, none, or numbers and ranges such as [5, 10-19]", err)
	}
	return nil
}

// direct reads yes, no, or the hosts to which there may be direct connections.
func direct(h *Host, n settings.Node) error {
	words, err := settings.Scalars(n)
	if err != nil {
		return err
	}
	h.NoDirect, h.DirectWith = false, nil
	if len(words) == 1 {
		if yes, err := settings.Bool(words[0]); err == nil {
			h.NoDirect = !yes
			return nil
		}
	}
	for _, w := range words {
		if f, err := session.ParseFingerprint(w); err == nil {
			w = f.String()
		} else if !session.ValidName(w) {
			return fmt.Errorf("%q is no name or fingerprint of a host; use yes, no, or a list of these", w)
		}
		h.DirectWith = append(h.DirectWith, w)
	}
	return nil
}

// modes reads a list of transfer modes.
func modes(h *Host, n settings.Node) error {
	words, err := settings.Scalars(n)
	if err != nil {
		return err
	}
	h.Modes = nil
	for _, w := range words {
		m, err := protocol.ParseMode(w)
		if err != nil {
			return err
		}
		h.Modes = append(h.Modes, m)
	}
	return nil
}

// no reads a yes or no into a field with the opposite meaning.
func no(word string) (bool, error) {
	yes, err := settings.Bool(word)
	return !yes, err
}

func number(word string) (int, error) {
	i, err := strconv.Atoi(word)
	if err != nil || i < 1 {
		return 0, fmt.Errorf("%q must be a number above 0", word)
	}
	return i, nil
}

func maxMACs(word string) (int, error) {
	i, err := number(word)
	if err != nil || i > lan.MaxUnicast {
		return 0, fmt.Errorf("%q must be a number from 1 to %d", word, lan.MaxUnicast)
	}
	return i, nil
}

func memory(word string) (int64, error) {
	size, err := units.Memory(word)
	if err == nil && size == 0 {
		err = errors.New("must be above 0; leave it out for no bound")
	}
	return size, err
}

// unlimitedOr returns a function that also parses `unlimited`, as 0.
func unlimitedOr(parse func(string) (int64, error)) func(string) (int64, error) {
	return func(word string) (int64, error) {
		if word == "unlimited" {
			return 0, nil
		}
		v, err := parse(word)
		if err != nil {
			return 0, fmt.Errorf("%w, or unlimited", err)
		}
		return v, nil
	}
}
