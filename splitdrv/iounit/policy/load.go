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

func keys() []string {
	return []string{
		"macs", "share", "ips", "vlans", "untagged", "nested-tags", "link-control", "promiscuous", "encrypt", "require-bind",
		"direct",
		"modes", "max-macs", "max-queues", "max-sessions", "max-memory", "max-tx-rate", "max-rx-rate",
		"max-tx-pps", "max-rx-pps", "max-tx-group-pps",
	}
}

// host reads the settings of one host into h, which has the values of missing settings. entry
// is the key of the host's entry, or "" for the default.
func (r *reader) host(h *Host, n settings.Node, what, entry string) {
	for _, e := range r.pairs(n, what) {
		bad := func(err error) {
			if err != nil {
				r.fail(e.Value, "%s: %s: %v", what, e.Key, err)
			}
		}
		switch e.Key {
		case "macs":
			h.entry = entry
			bad(macs(h, e.Value))
		case "max-macs":
			bad(upTo(&h.MaxMACs, lan.MaxUnicast, e.Value))
		case "share":
			bad(share(h, e.Value))
		case "ips":
			bad(ips(h, e.Value))
		case "vlans":
			words, err := settings.Scalars(e.Value)
			if err == nil {
				h.VLANs, err = protocol.ParseVLANs(strings.Join(words, ","))
			}
			if err != nil {
				bad(fmt.Errorf("%w; use all, none, or numbers and ranges such as [5, 10-19]", err))
			}
		case "untagged":
			bad(yesno(func(yes bool) { h.TaggedOnly = !yes }, e.Value))
		case "nested-tags":
			bad(yesno(func(yes bool) { h.SingleTag = !yes }, e.Value))
		case "link-control":
			bad(yesno(func(yes bool) { h.LinkControl = yes }, e.Value))
		case "promiscuous":
			bad(yesno(func(yes bool) { h.Promiscuous = yes }, e.Value))
		case "encrypt":
			wish, err := seal.ParseWish(settings.Scalar(e.Value))
			bad(err)
			h.Encrypt = wish
		case "require-bind":
			bad(yesno(func(yes bool) { h.RequireBind = yes }, e.Value))
		case "direct":
			bad(direct(h, e.Value))
		case "max-queues":
			bad(number(&h.MaxQueues, e.Value))
		case "max-sessions":
			bad(number(&h.MaxSessions, e.Value))
		case "max-memory":
			size, err := units.Memory(settings.Scalar(e.Value))
			if err == nil && size == 0 {
				err = errors.New("must be above 0; leave it out for no bound")
			}
			bad(err)
			h.MaxMemory = size
		case "max-tx-rate":
			bad(rate(&h.MaxTxRate, e.Value))
		case "max-rx-rate":
			bad(rate(&h.MaxRxRate, e.Value))
		case "max-tx-pps":
			bad(pps(&h.MaxTxPPS, e.Value))
		case "max-rx-pps":
			bad(pps(&h.MaxRxPPS, e.Value))
		case "max-tx-group-pps":
			bad(pps(&h.MaxTxGroupPPS, e.Value))
		case "modes":
			bad(modes(h, e.Value))
		default:
			r.fail(e.At, "%s: %w", what, &settings.UnknownKeyError{Key: e.Key, Known: keys()})
		}
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

func yesno(set func(yes bool), n settings.Node) error {
	yes, err := settings.Bool(settings.Scalar(n))
	if err == nil {
		set(yes)
	}
	return err
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

func number(v *int, n settings.Node) error {
	i, err := strconv.Atoi(settings.Scalar(n))
	if err != nil || i < 1 {
		return fmt.Errorf("%q must be a number above 0", settings.Scalar(n))
	}
	*v = i
	return nil
}

func upTo(v *int, most int, n settings.Node) error {
	i, err := strconv.Atoi(settings.Scalar(n))
	if err != nil || i < 1 || i > most {
		return fmt.Errorf("%q must be a number from 1 to %d", settings.Scalar(n), most)
	}
	*v = i
	return nil
}

// rate reads a rate in bits per second, or `unlimited`.
func rate(v *int64, n settings.Node) error {
	if settings.Scalar(n) == "unlimited" {
		*v = 0
		return nil
	}
	bits, err := parseRate(settings.Scalar(n))
	if err != nil {
		return fmt.Errorf("%w, or unlimited", err)
	}
	*v = bits
	return nil
}

// pps reads a number of packets per second, or `unlimited`.
func pps(v *int64, n settings.Node) error {
	if settings.Scalar(n) == "unlimited" {
		*v = 0
		return nil
	}
	packets, err := parsePPS(settings.Scalar(n))
	if err != nil {
		return fmt.Errorf("%w, or unlimited", err)
	}
	*v = packets
	return nil
}
