package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/protocol"
)

// config is the plugin's configuration of a network. Omitted fields have the values of the
// agent's flags.
type config struct {
	types.PluginConf
	Socket  string   `json:"socket"`  // of the agent
	Timeout string   `json:"timeout"` // such as 30s: for requests to the agent and the I/O unit
	MAC     string   `json:"mac"`
	MTU     int      `json:"mtu"`  // largest MTU to accept, in bytes
	VLAN    int      `json:"vlan"` // of the container's interface; 0: no VLAN
	Queues  int      `json:"queues"`
	IOUnits []string `json:"iounits"`
	Device  string   `json:"device"`
	Key     string   `json:"key"`
	Cert    string   `json:"cert"`

	// RuntimeConfig has the values that the runtime adds for "capabilities": {"mac": true}.
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`

	timeout time.Duration
	// anyValid is true if a GC request has a list of valid attachments, which may be empty.
	anyValid bool
	unknown  []string // unknown fields, sorted
}

// environment has the arguments in CNI_ARGS that the plugin uses.
type environment struct {
	types.CommonArgs
	MAC types.UnmarshallableString
}

// The default and the bounds of config.Timeout. ADD has to end before the runtime gives up;
// kubelet gives up after two minutes.
const (
	usualTimeout = "30s"
	leastTimeout = time.Second
	mostTimeout  = 10 * time.Minute
)

// validKey is the field of a GC request with the valid attachments.
const validKey = "cni.dev/valid-attachments"

func (c *config) duration() (time.Duration, error) {
	d, err := time.ParseDuration(c.Timeout)
	if err != nil {
		return 0, c.wrong("timeout", "%q is no time, such as 30s", c.Timeout)
	}
	if d < leastTimeout || d > mostTimeout {
		return 0, c.wrong("timeout", "%v: must be %v to %v", d, leastTimeout, mostTimeout)
	}
	return d, nil
}

// wrong returns an error about a field of the configuration.
func (c *config) wrong(field, format string, args ...any) error {
	return invalid(c.Name, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

// load reads the configuration. The agent checks the settings of cards.
func load(args *skel.CmdArgs) (*config, error) {
	c := &config{Socket: statussock.Path(cards.AgentSocket), Timeout: usualTimeout}
	if err := json.Unmarshal(args.StdinData, c); err != nil {
		return nil, invalid(c.Name, explainJSON(err))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(args.StdinData, &fields); err != nil {
		return nil, invalid(c.Name, err)
	}
	_, c.anyValid = fields[validKey]
	known := knownFields()
	for field := range fields {
		specified := strings.ContainsRune(field, '/')
		if !specified && !slices.Contains(known, field) && !slices.Contains(foreign, field) {
			c.unknown = append(c.unknown, field)
		}
	}
	slices.Sort(c.unknown)
	var err error
	if c.timeout, err = c.duration(); err != nil {
		return nil, err
	}
	if c.VLAN < 0 || c.VLAN > protocol.MaxVLAN {
		return nil, c.wrong("vlan", "%d: must be %d to %d", c.VLAN, protocol.MinVLAN, protocol.MaxVLAN)
	}
	if !strings.HasPrefix(c.Socket, "/") {
		return nil, c.wrong("socket", "%q: must be an absolute path", c.Socket)
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, invalid(c.Name, err)
	}
	return c, nil
}

// foreign has the fields that others put into the configurations of all plugins, and that do not
// concern this one. Multus, and drivers for dynamic resource allocation, name the device that a
// device plugin has allocated, if the network has a resource: deviceID, and pciBusID whatever the
// device is. Runtimes and Multus pass arguments of the pod in args.
var foreign = []string{"args", "deviceID", "pciBusID"}

func knownFields() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// allKnown returns an error if there is a field that the plugin does not know, which is most
// likely mistyped. DEL and GC do not call it, because they have to remove what exists.
func (c *config) allKnown() error {
	if len(c.unknown) == 0 {
		return nil
	}
	known := slices.DeleteFunc(knownFields(), func(name string) bool { return strings.ContainsRune(name, '/') })
	return c.wrong(c.unknown[0], "there is no such field; there are %s", strings.Join(known, ", "))
}

// explainJSON names the field in an error about a wrong type.
func explainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	return fmt.Errorf("%s: is a %s, and must be of type %v", wrong.Field, wrong.Value, wrong.Type)
}

func (c *config) spec(a attachment, args *skel.CmdArgs) (*cards.Spec, error) {
	var env environment
	if err := types.LoadArgs(args.Args, &env); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS: %v", err), "")
	}
	return &cards.Spec{
		Name: a.card(), Owner: a.owner(), Netdevice: c.netdevice(a), NetNS: args.Netns,
		MAC: cmp.Or(c.RuntimeConfig.MAC, string(env.MAC), c.MAC), MTU: c.MTU, Queues: c.Queues,
		IOUnits: c.IOUnits, Device: c.Device, Key: c.Key, Cert: c.Cert,
		Transient: true,
	}, nil
}

// previous returns the result of the plugins before this one, which may be empty.
func (c *config) previous() (*current.Result, error) {
	if c.PrevResult == nil {
		return &current.Result{CNIVersion: current.ImplementedSpecVersion}, nil
	}
	r, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, c.wrong("prevResult", "%v", err)
	}
	return r, nil
}

// program is the name of the plugin, which is the type in configurations.
const program = "splitnic-cni"

func attachmentOf(c *config, args *skel.CmdArgs) attachment {
	return attachment{c.Name, args.ContainerID, args.IfName}
}

func (c *config) netdevice(a attachment) string {
	if c.VLAN == 0 {
		return a.ifname
	}
	return a.trunk()
}

// attachment is a container's connection to a network, as defined by the CNI specification.
type attachment struct{ network, container, ifname string }

// ownerPrefix is the first part of the owner of this plugin's cards.
const ownerPrefix = "cni"

// owner returns the owner of the card, which the agent records. No part contains a slash: the
// specification does not allow it.
func (a attachment) owner() string {
	return strings.Join([]string{ownerPrefix, a.network, a.container, a.ifname}, "/")
}

// attachmentOwning is the reverse of owner. ok is false for cards that this plugin has not made.
func attachmentOwning(owner string) (a attachment, ok bool) {
	part := strings.Split(owner, "/")
	if len(part) != 4 || part[0] != ownerPrefix {
		return attachment{}, false
	}
	return attachment{part[1], part[2], part[3]}, true
}

// shown is the number of bytes of a container's identifier in names and messages. Runtimes show
// the same number.
const shown = 12

func (a attachment) short() string { return a.container[:min(len(a.container), shown)] }

// card returns the name of the card, which is the same in each request about the attachment. Its
// length is limited, whatever the lengths of the parts of the attachment. It shows an
// administrator which container it is.
func (a attachment) card() string {
	return fmt.Sprintf("%s-%s-%s", ownerPrefix, a.short(), a.hash(8))
}

// trunk returns the name of the card's netdevice if the interface is a VLAN device on it.
func (a attachment) trunk() string { return "sn-" + a.hash(6) }

// hash returns that many bytes of a hash of the attachment, in hexadecimal digits.
func (a attachment) hash(bytes int) string {
	sum := sha256.Sum256([]byte(a.owner()))
	return hex.EncodeToString(sum[:bytes])
}

func (a attachment) String() string {
	return fmt.Sprintf("network %s: %s of container %s", a.network, a.ifname, a.short())
}

// Codes of errors that the specification reserves for plugins. docs/cni.md lists them.
const (
	errAttached uint = 100 + iota // the attachment already has a card
	errCard                       // the agent could not make or remove the card
	errDiffers                    // CHECK has found something else than ADD has made
)

func invalid(network string, err error) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("configuration of network %s: %v", network, err), "")
}
