package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/statussock"
)

var update = flag.Bool("update", false, "write the golden files anew")

// schemaURL identifies the schema. No file needs to exist there.
const schemaURL = "https://github.com/splitnic/splitnic/status.schema.json"

// statusSchemaOf returns the schema of the output of `splitnic status --json`, made from the
// types. A strict schema permits no other fields than those of the types. The published one is
// not strict, because readers have to ignore new fields.
func statusSchemaOf(t *testing.T, strict bool) []byte {
	t.Helper()
	r := jsonschema.Reflector{AllowAdditionalProperties: !strict, Mapper: special, Namer: func(of reflect.Type) string {
		if of.Kind() == reflect.Struct {
			return of.String() // with the package: several have a Status
		}
		return ""
	}}
	host, unit, agent := r.Reflect(daemon.HostStatus{}), r.Reflect(daemon.UnitStatus{}), r.Reflect(daemon.AgentStatus{})
	all := &jsonschema.Schema{
		Version: jsonschema.Version, ID: schemaURL, Title: "splitnic status --json",
		Description: "one for each host, card, agent and I/O unit; readers ignore fields that they do not know. " +
			"docs/counters.md has the counters", Type: "array", Definitions: host.Definitions,
		Items: &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Ref: host.Ref}, {Ref: unit.Ref}, {Ref: agent.Ref}}},
	}
	maps.Copy(all.Definitions, unit.Definitions)
	maps.Copy(all.Definitions, agent.Definitions)
	for name, role := range map[string]string{
		"daemon.HostStatus": "host", "daemon.UnitStatus": "iounit", "daemon.AgentStatus": "agent",
	} {
		p, ok := all.Definitions[name].Properties.Get("role")
		if !ok {
			t.Fatalf("%s has no role", name)
		}
		p.Const = role
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// agentSchemaOf returns the schema of the requests and answers of the agent's API v1.
func agentSchemaOf(t *testing.T, strict bool) []byte {
	t.Helper()
	r := jsonschema.Reflector{AllowAdditionalProperties: !strict, Mapper: special}
	all := &jsonschema.Schema{
		Version: jsonschema.Version, ID: agentSchemaURL, Title: "API v1 of splitnic agent",
		Description: "requests are a Spec, answers an Info, a List or a Failure; docs/agent.md says which",
		Definitions: jsonschema.Definitions{},
	}
	for _, v := range []any{cards.Spec{}, cards.Info{}, cards.List{}, cards.Failure{}} {
		one := r.Reflect(v)
		maps.Copy(all.Definitions, one.Definitions)
		all.AnyOf = append(all.AnyOf, &jsonschema.Schema{Ref: one.Ref})
	}
	// A request has no other fields: the agent rejects unknown ones.
	all.Definitions["Spec"].AdditionalProperties = jsonschema.FalseSchema
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

const agentSchemaURL = "https://github.com/splitnic/splitnic/agent-v1.schema.json"

// TestAgentSchema expects agent-v1.schema.json to match the types. Additions to the schema are
// allowed in v1, other changes are not.
func TestAgentSchema(t *testing.T) {
	want := agentSchemaOf(t, false)
	if *update {
		if err := os.WriteFile("agent-v1.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(agentSchema, want) {
		t.Error("agent-v1.schema.json is not that of the types: go test ./cmd/splitnic -run TestAgentSchema -update, " +
			"and look at the difference")
	}
}

// special returns the schema of a type whose JSON encoding the reflector does not know, or nil.
func special(of reflect.Type) *jsonschema.Schema {
	switch {
	case of == reflect.TypeFor[time.Time]():
		return nil
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return &jsonschema.Schema{Type: "string"}
	case of == reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "integer", Description: "nanoseconds"}
	case of.Kind() == reflect.Map && of.Elem().Kind() == reflect.Uint64: // counts by name
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "integer"}}
	}
	return nil
}

// TestStatusSchema expects status.schema.json to match the types. So every change of the status
// that programs can notice is a change of this file.
func TestStatusSchema(t *testing.T) {
	want := statusSchemaOf(t, false)
	if *update {
		if err := os.WriteFile("status.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(statusSchema, want) {
		t.Error("status.schema.json is not that of the types: go test ./cmd/splitnic -run TestStatusSchema -update, " +
			"and look at the difference")
	}
}

// TestStatusIsAsItsSchema validates the output of the status socket for each type, once empty
// and once with all fields set. It expects that an unknown role is not valid.
func TestStatusIsAsItsSchema(t *testing.T) {
	schema, err := validator.UnmarshalJSON(bytes.NewReader(statusSchemaOf(t, true)))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(schemaURL, schema); err != nil {
		t.Fatal(err)
	}
	v, err := c.Compile(schemaURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, full := range []bool{false, true} {
		var host daemon.HostStatus
		var unit daemon.UnitStatus
		var agent daemon.AgentStatus
		if full {
			fill(reflect.ValueOf(&host).Elem())
			fill(reflect.ValueOf(&unit).Elem())
			fill(reflect.ValueOf(&agent).Elem())
		}
		host.Role, unit.Role, agent.Role = "host", "iounit", "agent"
		for i := range agent.Cards { // values that a card can have
			agent.Cards[i].Status.State, agent.Cards[i].Spec.MTU = cards.Failed, 1500
		}
		for what, status := range map[string]any{"host": host, "I/O unit": unit, "agent": agent} {
			if err := v.Validate(served(t, status)); err != nil {
				t.Errorf("%s, full %v: %v", what, full, err)
			}
		}
		host.Role = "neither"
		if err := v.Validate(served(t, host)); err == nil {
			t.Error("a status of neither role is valid")
		}
	}
}

// served returns what `splitnic status --json` prints for a status.
func served(t *testing.T, status any) any {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sock")
	s, err := statussock.Serve(path, func() any { return status })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	if err := (&statusFlags{json: true}).show(t.Context(), &out, []string{path}, nil); err != nil {
		t.Fatal(err)
	}
	document, err := validator.UnmarshalJSON(&out)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// fill sets all exported fields in v to a value, and adds an element to lists and maps.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	default:
		if v.CanInt() {
			v.SetInt(1)
		} else if v.CanUint() {
			v.SetUint(1)
		}
	}
}
