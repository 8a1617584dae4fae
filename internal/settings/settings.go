// Package settings parses YAML configuration files: one document, a map of scalars and lists
// of scalars. Errors name file and line.
package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/splitnic/splitnic/internal/bom"
)

// Node is a value in a file, or nil if the value is empty.
type Node = ast.Node

// Entry is one entry of a map.
type Entry struct {
	Key       string
	At, Value Node
}

// Parse returns the only document of a file, or nil if the file is empty.
func Parse(file string, text []byte) (Node, error) {
	text, err := bom.Cut(text)
	if err != nil {
		return nil, fmt.Errorf("%s:1: not YAML: %w", file, err)
	}
	// A binary file takes seconds to parse.
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("%s:%d: not YAML: a zero byte is no text", file, 1+bytes.Count(text[:i], []byte("\n")))
	}
	parsed, err := parser.ParseBytes(text, 0)
	var at yaml.Error
	switch {
	case errors.As(err, &at) && at.GetToken() != nil:
		return nil, fmt.Errorf("%s:%d: not YAML: %s%s", file, at.GetToken().Position.Line, at.GetMessage(), remedy(at))
	case err != nil:
		return nil, fmt.Errorf("%s: not YAML: %w", file, err)
	case len(parsed.Docs) > 1:
		return nil, fmt.Errorf("%s:%d: more than one YAML document; leave out the lines of three dashes or dots", file,
			start(parsed.Docs[1]))
	case len(parsed.Docs) == 0:
		return nil, nil
	}
	if n := reference(parsed.Docs[0].Body); n != nil {
		return nil, Errorf(file, n, "there are no anchors and aliases here; put a word that begins with & or * in quotation marks")
	}
	return parsed.Docs[0].Body, nil
}

// remedy returns what to do about an error of the parser, or "".
func remedy(err yaml.Error) string {
	if strings.Contains(err.GetMessage(), "'\t'") {
		return "; indent with spaces, not tabs"
	}
	return ""
}

// reference returns the first anchor or alias below a node, or nil. Without this check it would be taken
// for a word.
func reference(n Node) Node {
	var found []Node
	if n != nil {
		found = append(ast.Filter(ast.AnchorType, n), ast.Filter(ast.AliasType, n)...)
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MinFunc(found, func(a, b Node) int { return cmp.Compare(Line(a), Line(b)) })
}

// start returns the number of the line in which a document begins.
func start(d *ast.DocumentNode) int {
	switch {
	case d.Start != nil:
		return d.Start.Position.Line
	case d.Body != nil: // the document before it ends with three dots
		return Line(d.Body)
	}
	return 1 // an empty document has no position
}

// UnknownKeyError is the error about a key that a map of a file cannot have.
type UnknownKeyError struct {
	Key   string
	Known []string // keys that it can have
}

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("unknown key %q; there are %s", e.Key, strings.Join(e.Known, ", "))
}

// Errorf returns an error about the value n in a file.
func Errorf(file string, n Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", file, Line(n), fmt.Errorf(format, args...))
}

// Line returns the number of the line of n, from 1.
func Line(n Node) int { return n.GetToken().Position.Line }

// Map returns the entries of a map, or none for an empty value.
func Map(n Node) (entries []Entry, ok bool) {
	switch n := n.(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode:
		for _, v := range n.Values {
			entries = append(entries, Entry{v.Key.GetToken().Value, v.Key, v.Value})
		}
	case *ast.MappingValueNode:
		entries = append(entries, Entry{n.Key.GetToken().Value, n.Key, n.Value})
	default:
		return nil, false
	}
	return entries, true
}

// Scalar returns the text of a scalar as written in the file, or "" for an empty value. That of a
// list or map, where there must be one word, is for an error.
func Scalar(n Node) string {
	switch n := n.(type) {
	case *ast.SequenceNode, *ast.MappingNode, *ast.MappingValueNode:
		return n.String()
	}
	return scalar(n)
}

// scalar is Scalar, but returns "" for a list or map.
func scalar(n Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return ""
	case *ast.LiteralNode:
		return n.Value.Value
	case ast.ScalarNode:
		return n.GetToken().Value
	}
	return ""
}

// Scalars returns the texts of the scalars in a list, or of a single scalar.
func Scalars(n Node) ([]string, error) {
	nodes := []Node{n}
	list, isList := n.(*ast.SequenceNode)
	if isList {
		nodes = list.Values
	}
	words := make([]string, len(nodes))
	for i, n := range nodes {
		if words[i] = scalar(n); words[i] == "" {
			if _, isMap := Map(n); isMap && isList { // such as 2001:db8::1 in a list between braces
				return nil, errors.New("must be a word or a list of words; put a word with colons in quotation marks")
			}
			return nil, errors.New("must be a word or a list of words")
		}
	}
	if len(words) == 0 {
		return nil, errors.New("the list is empty")
	}
	return words, nil
}

// Bool parses a boolean of a file or a flag.
func Bool(word string) (bool, error) {
	switch word {
	case "yes", "true", "on":
		return true, nil
	case "no", "false", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q must be yes or no", word)
}
