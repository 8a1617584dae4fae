package session

import (
	"crypto/x509"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestReason(t *testing.T) {
	names := Reasons()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&FieldError{Field: "mode"}, "field-mode"},
		{fmt.Errorf("channel 2: %w", invalid("qpn", 1, "must be more")), "field-qpn"},
		{&UntrustedError{}, "untrusted"},
		{&UntrustedError{Reason: ErrRevoked}, "revoked"},
		{&UntrustedError{Reason: x509.CertificateInvalidError{Reason: x509.Expired}}, "expired"},
		{&RevokedError{Reason: errors.New("not listed")}, "untrusted"},
		{&RevokedError{Reason: ErrRevoked}, "revoked"},
		{&RevokedError{Reason: x509.CertificateInvalidError{Reason: x509.Expired}}, "expired"},
		{&VersionError{}, "version"},
		{&ByeError{}, "bye"},
		{&ByeError{Code: CodeElsewhere}, "elsewhere"},
		{ErrSecurityMode, "security-mode"},
		{ErrNotSplitnic, "not-splitnic"},
		{ErrFrame, "frame"},
		{ErrMessage, "message"},
		{ErrUnexpected, "out-of-turn"},
		{ErrTooOften, "too-often"},
		{ErrTooManyHandshakes, "too-many-handshakes"},
		{ErrTooManyHandshakesAddress, "too-many-handshakes-address"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "late"},
		{ErrPeerGone, "gone"},
		{errors.New("what nobody thought of"), "other"},
	} {
		if got := Reason(fmt.Errorf("some step: %w", tt.err)); got != tt.want || !slices.Contains(names, got) {
			t.Errorf("%v is %q, want %q, which must be one of %q", tt.err, got, tt.want, names)
		}
	}
	if err := invalid("mode", "x", "must be y"); !errors.Is(err, ErrMessage) ||
		err.Error() != `invalid message: mode is "x", must be y` {
		t.Errorf("%v", err)
	}
}

// TestEveryFieldHasAReason searches the source for calls of invalid. Their fields must be exactly
// those in fields.
func TestEveryFieldHasAReason(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if fn, ok := call.Fun.(*ast.Ident); !ok || fn.Name != "invalid" {
				return true
			}
			if arg, ok := call.Args[0].(*ast.BasicLit); ok {
				field, _ := strconv.Unquote(arg.Value)
				found[field] = true
			}
			return true
		})
	}
	for _, f := range fields {
		if !found[f] {
			t.Errorf("field %q is never checked", f)
		}
		delete(found, f)
	}
	for f := range found {
		t.Errorf("field %q has no reason", f)
	}
}
