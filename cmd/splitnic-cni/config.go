package main

import (
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

// config is the plugin's configuration of a network. What is left out is as the agent's
// flags say.
type config struct {
	types.PluginConf
	Socket  string   `json:"socket"`  // of the agent
	Timeout string   `json:"timeout"` // such as 30s: of what is asked of the agent and the I/O unit
	MAC     string   `json:"mac"`
	MTU     int      `json:"mtu"`  // bytes, the largest to accept
	VLAN    int      `json:"vlan"` // of the container's interface; 0: of none
	Queues  int      `json:"queues"`
	IOUnits []string `json:"iounits"`
	Device  string   `json:"device"`
	Key     string   `json:"key"`
	Cert    string   `json:"cert"`

	// RuntimeConfig has what the runtime fills in for "capabilities": {"mac": true}.
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`

	timeout time.Duration
	// anyValid says that a GC request has said which attachments are valid, if only none.
	anyValid bool
	unknown  []string // fields
}

// environment is what CNI_ARGS has for the plugin.
type environment struct {
	types.CommonArgs
	MAC types.UnmarshallableString
}

// The bounds of config.Timeout. ADD has to end before the runtime gives up, which for
// kubelets is after two minutes.
const (
	usualTimeout = "30s"
	leastTimeout = time.Second
	mostTimeout  = 10 * time.Minute
)

// validKey is where a GC request has the valid attachments.
const validKey = "cni.dev/valid-attachments"

// duration is what Timeout says.
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

// fieldError is about a field of the configuration.
type fieldError struct{ field, problem string }

func (e *fieldError) Error() string { return e.field + ": " + e.problem }

// load reads the configuration. What a card cannot be, the agent says.
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
		if !slices.Contains(known, field) && !strings.ContainsRune(field, '/') { // which are the specification's
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

// knownFields are those of config, and "args", which a runtime may have for all plugins.
func knownFields() []string {
	names := []string{"args"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// allKnown refuses fields that the plugin does not know, which are most likely mistyped. Not
// so DEL and GC: what is there has to go.
func (c *config) allKnown() error {
	if len(c.unknown) == 0 {
		return nil
	}
	known := slices.DeleteFunc(knownFields(), func(name string) bool { return strings.ContainsRune(name, '/') })
	return invalid(c.Name, &fieldError{c.unknown[0], "there is no such field; there are " + strings.Join(known, ", ")})
}

// explainJSON names the field that is of another type.
func explainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	return &fieldError{wrong.Field, fmt.Sprintf("is a %s, and must be of type %v", wrong.Value, wrong.Type)}
}

// spec is what the card of an attachment is to be.
func (c *config) spec(a attachment, args *skel.CmdArgs) (*cards.Spec, error) {
	var env environment
	if err := types.LoadArgs(args.Args, &env); err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS: %v", err), "")
	}
	mac := c.MAC
	if env.MAC != "" {
		mac = string(env.MAC)
	}
	if c.RuntimeConfig.MAC != "" {
		mac = c.RuntimeConfig.MAC
	}
	return &cards.Spec{
		Name: a.card(), Owner: a.owner(), Netdevice: c.netdevice(a), NetNS: args.Netns, MAC: mac, MTU: c.MTU,
		Queues: c.Queues, IOUnits: c.IOUnits, Device: c.Device, Key: c.Key, Cert: c.Cert,
		Transient: true,
	}, nil
}

// previous is the result of the plugins before this one, which may be empty.
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

// program is the name that configurations have as their type.
const program = "splitnic-cni"

func attachmentOf(c *config, args *skel.CmdArgs) attachment {
	return attachment{c.Name, args.ContainerID, args.IfName}
}

// netdevice is the name of the card's netdevice in the container.
func (c *config) netdevice(a attachment) string {
	if c.VLAN == 0 {
		return a.ifname
	}
	return a.trunk()
}
