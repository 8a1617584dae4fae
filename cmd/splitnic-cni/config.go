package main

import (
	"cmp"
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
		return 0, &fieldError{"timeout", fmt.Sprintf("%q is no time, such as 30s", c.Timeout)}
	}
	if d < leastTimeout || d > mostTimeout {
		return 0, &fieldError{"timeout", fmt.Sprintf("%v: must be %v to %v", d, leastTimeout, mostTimeout)}
	}
	return d, nil
}

// fieldError is an error about a field of the configuration.
type fieldError struct{ field, problem string }

func (e *fieldError) Error() string { return e.field + ": " + e.problem }

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
		return nil, invalid(c.Name, err)
	}
	if c.VLAN < 0 || c.VLAN > protocol.MaxVLAN {
		return nil, invalid(c.Name, &fieldError{"vlan", fmt.Sprintf("%d: must be %d to %d", c.VLAN, protocol.MinVLAN,
			protocol.MaxVLAN)})
	}
	if !strings.HasPrefix(c.Socket, "/") {
		return nil, invalid(c.Name, &fieldError{"socket", fmt.Sprintf("%q: must be an absolute path", c.Socket)})
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
	return invalid(c.Name, &fieldError{c.unknown[0], "there is no such field; there are " + strings.Join(known, ", ")})
}

// explainJSON names the field in an error about a wrong type.
func explainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	return &fieldError{wrong.Field, fmt.Sprintf("is a %s, and must be of type %v", wrong.Value, wrong.Type)}
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
		return nil, invalid(c.Name, &fieldError{"prevResult", err.Error()})
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
