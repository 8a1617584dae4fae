package cards

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/statussock"
)

// serve serves a set on a socket.
func serve(t *testing.T, s *Set) Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	sock, err := statussock.ServeAPI(path, API(s), func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	return Client(path)
}

// TestAPI adds, lists and removes cards through a socket.
func TestAPI(t *testing.T) {
	s := newSet(t, newMaker(), newStore(t))
	c := serve(t, s)
	for range 2 {
		i, err := c.Add(t.Context(), &Spec{Name: "a.b", Netdevice: "sn0", NetNS: "pod", Owner: "me"})
		if err != nil || i.Spec.NetNS != "/run/netns/pod" || i.Status.State != Connected {
			t.Errorf("%+v, %v", i, err)
		}
	}
	if i, err := c.Get(t.Context(), "a.b"); err != nil || i.Spec.Netdevice != "sn0" || i.Spec.Owner != "me" {
		t.Errorf("%+v, %v", i, err)
	}
	var refused *Refused
	if i, err := c.Get(t.Context(), "b"); !errors.As(err, &refused) || refused.Code != Unknown {
		t.Errorf("%+v, %v", i, err)
	}
	l, raw, err := c.List(t.Context())
	if err != nil || len(l.Cards) != 1 || l.Cards[0].Spec.Name != "a.b" || !strings.Contains(string(raw), `"netns"`) {
		t.Errorf("%+v, %s, %v", l, raw, err)
	}
	for range 2 {
		if err := c.Del(t.Context(), "a.b"); err != nil {
			t.Error(err)
		}
	}
	if l, raw, err := c.List(t.Context()); err != nil || len(l.Cards) != 0 || !strings.Contains(string(raw), `[]`) {
		t.Errorf("%+v, %s, %v", l, raw, err)
	}
}

// TestAPIFailures makes requests that fail. It expects each answer to have its code and to name
// the field.
func TestAPIFailures(t *testing.T) {
	m := newMaker()
	m.failing("bad", errors.New("broken"))
	s := newSet(t, m, newStore(t))
	c := serve(t, s)
	s.add(t, "a")
	for what, x := range map[string]struct {
		method, path, body string
		status             int
		code               Code
		field              string
	}{
		"a bad field":      {"PUT", "/a", `{"mtu":1}`, http.StatusBadRequest, Invalid, "mtu"},
		"a wrong type":     {"PUT", "/a", `{"mtu":"1"}`, http.StatusBadRequest, Invalid, "mtu"},
		"an unknown field": {"PUT", "/a", `{"colour":"red"}`, http.StatusBadRequest, Invalid, "body"},
		"no JSON":          {"PUT", "/a", `name: a`, http.StatusBadRequest, Invalid, "body"},
		"nothing":          {"PUT", "/a", ``, http.StatusBadRequest, Invalid, "body"},
		"another name":     {"PUT", "/a", `{"name":"b"}`, http.StatusBadRequest, Invalid, "name"},
		"a bad name":       {"PUT", "/-", `{}`, http.StatusBadRequest, Invalid, "name"},
		"another card":     {"PUT", "/a", `{"mtu":1500}`, http.StatusConflict, Conflict, "mtu"},
		"a broken card":    {"PUT", "/bad", `{}`, http.StatusInternalServerError, Broken, ""},
		"no card":          {"GET", "/b", ``, http.StatusNotFound, Unknown, ""},
	} {
		t.Run(what, func(t *testing.T) {
			status, raw, err := statussock.Call(t.Context(), string(c), x.method, Root+x.path, []byte(x.body), patience)
			if err != nil {
				t.Fatal(err)
			}
			var f Failure
			if err := decode(raw, &f); err != nil || status != x.status || f.Error == "" {
				t.Errorf("%d, %s, %v", status, raw, err)
			}
			if f.Code != x.code || f.Field != x.field {
				t.Errorf("%d, %s, %v", status, raw, err)
			}
		})
	}
	_, err := c.Add(t.Context(), &Spec{Name: "bad"})
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code != Broken || !strings.Contains(err.Error(), "broken") {
		t.Error(err)
	}
	// The socket belongs to a daemon without the API.
	path := filepath.Join(t.TempDir(), "host.sock")
	sock, err := statussock.Serve(path, func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if _, err := Client(path).Add(t.Context(), &Spec{Name: "a"}); !errors.Is(err, statussock.ErrUnknown) {
		t.Error(err)
	}
}

// TestLargeRequest expects a request that is too large to fail as an invalid one.
func TestLargeRequest(t *testing.T) {
	s := newSet(t, newMaker(), newStore(t))
	w := httptest.NewRecorder()
	API(s).ServeHTTP(w, httptest.NewRequest("PUT", Root+"/a", strings.NewReader(strings.Repeat(" ", maxSpec+1))))
	var f Failure
	if err := decode(w.Body.Bytes(), &f); err != nil || w.Code != http.StatusBadRequest || f.Code != Invalid ||
		f.Field != "body" {
		t.Errorf("%d, %+v, %v", w.Code, f, err)
	}
}
