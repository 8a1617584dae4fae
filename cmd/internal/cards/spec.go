package cards

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Spec is the requested configuration of a card, in the form of API v1 and of the state
// directory. Omitted fields have the values of the agent's flags.
type Spec struct {
	Name string `json:"name" jsonschema:"minLength=1,maxLength=80,pattern=^[A-Za-z0-9_][A-Za-z0-9._-]*$"`
	// Netdevice is the name of the netdevice; empty means the card's.
	Netdevice string `json:"netdevice,omitempty" jsonschema:"maxLength=15,description=default: the card's name"`
	// NetNS is the network namespace of the netdevice, by name or path; empty means the
	// agent's.
	NetNS string `json:"netns,omitempty" jsonschema:"description=name or path"`
	MAC   string `json:"mac,omitempty" jsonschema:"description=default: derived from the key by the I/O unit"`
	// MTU is the largest MTU to accept, in bytes.
	MTU    int `json:"mtu,omitempty" jsonschema:"minimum=68,maximum=65535,description=largest to accept"`
	Queues int `json:"queues,omitempty" jsonschema:"minimum=1"`
	// Encrypt says whether the sessions of the card are encrypted.
	Encrypt string `json:"encrypt,omitempty" jsonschema:"description=of all frames on the fabric: required or allowed or no"`
	// IOUnits are addresses of I/O units, and names of their SRV records: srv:NAME.
	IOUnits []string `json:"iounits,omitempty" jsonschema:"description=addresses or srv:NAME in order of preference"`
	Device  string   `json:"device,omitempty" jsonschema:"description=RDMA device"`
	// HostName is the name of the card for the I/O unit.
	HostName string `json:"host_name,omitempty" jsonschema:"description=default: HOSTNAME.NAME"`
	// Key is the file with the private key of the card, and Cert a file with a certificate for
	// that key.
	Key  string `json:"key,omitempty" jsonschema:"description=file; default: the agent's key"`
	Cert string `json:"cert,omitempty" jsonschema:"description=file with a certificate for key"`
	// NewKey makes the agent make a key for the card. The key is removed with the card.
	NewKey bool `json:"new_key,omitempty"`
	// Owner says for whom the card was made, so that a program can find its own cards. The
	// agent does not interpret it.
	Owner string `json:"owner,omitempty" jsonschema:"maxLength=512,description=for whom the card was made"`
	// Transient makes the agent remove the card when NetNS is no longer the path of the
	// namespace in which the card was made.
	Transient bool `json:"transient,omitempty" jsonschema:"description=removed when the network namespace is gone"`
}

// maxOwner is the maximum length of Owner in bytes.
const maxOwner = 512

// maxName is the maximum length of a card's name. It is limited by the length of the path of the
// card's status socket.
const maxName = 80

// FieldError is an error about a field of a request.
type FieldError struct {
	Field   string // its name in JSON
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Complete checks a request, and returns it in a normal form, so that Differs finds no difference
// between equal requests. The error wraps a FieldError for each invalid field.
func (s Spec) Complete() (Spec, error) {
	var errs []error
	refuse := func(is bool, field, format string, args ...any) {
		if is {
			errs = append(errs, &FieldError{field, fmt.Sprintf(format, args...)})
		}
	}
	if err := checkName(s.Name); err != nil {
		errs = append(errs, err)
	}
	s.Netdevice = cmp.Or(s.Netdevice, s.Name)
	refuse(!validNetdevice(s.Netdevice), "netdevice",
		"%q is not possible: must be 1 to %d bytes without '/', ':', '%%' and spaces; the default is the card's name",
		s.Netdevice, unix.IFNAMSIZ-1)
	refuse(strings.ContainsRune(s.NetNS, '/') && !filepath.IsAbs(s.NetNS) || s.NetNS == "." || s.NetNS == "..", "netns",
		"%q is not possible: must be a name below %s, or an absolute path", s.NetNS, netns.Dir)
	s.NetNS = netns.Path(s.NetNS)
	if s.MAC != "" {
		mac, err := protocol.ParseMAC(s.MAC)
		refuse(err != nil, "mac", "%q is not possible: %v", s.MAC, err)
		if err == nil {
			s.MAC = mac.String()
		}
	}
	refuse(s.MTU != 0 && (s.MTU < protocol.MinMTU || s.MTU > protocol.MaxMTU), "mtu", "%d: must be %d to %d", s.MTU,
		protocol.MinMTU, protocol.MaxMTU)
	refuse(s.Queues < 0 || s.Queues > cq.MaxQueues, "queues", "%d: must be 1 to %d", s.Queues, cq.MaxQueues)
	if s.Encrypt != "" {
		_, err := seal.ParseWish(s.Encrypt)
		refuse(err != nil, "encrypt", "%v", err)
	}
	for _, err := range CheckIOUnits(s.IOUnits) {
		refuse(true, "iounits", "%v", err)
	}
	refuse(strings.ContainsAny(s.Device, "/ "), "device", "%q is no name of an RDMA device", s.Device)
	refuse(s.HostName != "" && !session.ValidName(s.HostName), "host_name",
		"%q is not possible: must be 1 to 253 letters, digits, '.', '_' or '-'", s.HostName)
	for field, path := range map[string]string{"key": s.Key, "cert": s.Cert} {
		refuse(path != "" && !filepath.IsAbs(path), field, "%q is not possible: must be an absolute path", path)
	}
	refuse(s.NewKey && s.Key != "", "new_key", "a card has one key: leave out this or key")
	refuse(s.Cert != "" && s.Key == "", "cert", "the field key is missing")
	refuse(s.Transient && s.NetNS == "", "transient", "netns is missing, with which the card would go")
	refuse(!validOwner(s.Owner), "owner", "%q is not possible: must be at most %d bytes without spaces", s.Owner, maxOwner)
	if len(errs) > 0 {
		return Spec{}, errors.Join(errs...)
	}
	return s, nil
}

// CheckIOUnits returns an error for each entry of a list of I/O units that is invalid, or in the list
// before, perhaps in another form.
func CheckIOUnits(entries []string) (errs []error) {
	seen, reported := map[string]bool{}, map[string]bool{}
	for _, entry := range entries {
		same := oneForm(entry)
		err := discovery.Check(entry)
		if err == nil && seen[same] {
			err = fmt.Errorf("%q is in the list twice; leave it out", entry)
		}
		if err != nil && !reported[entry] {
			errs = append(errs, err)
			reported[entry] = true
		}
		seen[same] = true
	}
	return errs
}

// oneForm returns an entry of a list of I/O units in the form that all entries for the same have.
func oneForm(entry string) string {
	if _, ok := discovery.ByDNS(entry); ok {
		return strings.ToLower(entry)
	}
	host, port, err := net.SplitHostPort(session.WithPort(entry))
	if err != nil {
		return entry
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(addr.String(), port) // names of links, such as eth0, have upper and lower case
	}
	return net.JoinHostPort(strings.ToLower(host), port)
}

// ValidName reports whether a card can have that name. File names contain it.
func ValidName(name string) bool {
	return len(name) <= maxName && session.ValidName(name) && name[0] != '.' && name[0] != '-'
}

func checkName(name string) error {
	if ValidName(name) {
		return nil
	}
	return &FieldError{"name", fmt.Sprintf(
		"%q is not possible: must be 1 to %d letters, digits, '.', '_' or '-', and begin with none of '.' and '-'", name, maxName)}
}

// validNetdevice refuses the names that dev_valid_name of the kernel refuses, and names with '%',
// which the kernel would replace by a number.
func validNetdevice(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/:% \t\n\v\f\r")
}

// validOwner refuses owners that are too long, or would not be one word in a table.
func validOwner(owner string) bool {
	return len(owner) <= maxOwner && utf8.ValidString(owner) &&
		!strings.ContainsFunc(owner, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// Differs returns the JSON name of the first field in which two requests differ, or "" if they
// are equal. Complete must have returned both requests.
func (s *Spec) Differs(other *Spec) string {
	a, b := reflect.ValueOf(*s), reflect.ValueOf(*other)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		empty := x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 // nil and empty are equal
		if !empty && !reflect.DeepEqual(x.Interface(), y.Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}
