package verbs

import (
	"errors"
	"io"
	"testing"
)

// member is a child that appends its name to log when it is closed.
type member struct {
	name string
	log  *[]string
	err  error
	f    *family
}

func (m *member) Close() error {
	*m.log = append(*m.log, m.name)
	if m.err != nil {
		return m.err
	}
	m.f.remove(m)
	return nil
}

func TestFamily(t *testing.T) {
	var f family
	var log []string
	if !f.enter() {
		t.Fatal("closed from the start")
	}
	bad := &member{"mr", &log, io.ErrShortWrite, &f}
	f.add(&member{"cq", &log, nil, &f}, rankCQ)
	f.add(&member{"qp", &log, nil, &f}, rankQP)
	f.add(bad, rankMR)
	f.add(&member{"mw", &log, nil, &f}, rankMW)
	f.leave()

	if err := f.close(); !errors.Is(err, io.ErrShortWrite) {
		t.Fatalf("error %v", err)
	}
	if got := len(log); got != 4 || log[0] != "qp" || log[1] != "mw" || log[2] != "mr" || log[3] != "cq" {
		t.Fatalf("closed in the order %q", log)
	}
	if f.enter() {
		t.Fatal("open after close")
	}
	// A second close closes only the member whose close has failed.
	log, bad.err = nil, nil
	if err := f.close(); err != nil || len(log) != 1 || log[0] != "mr" {
		t.Fatalf("%q, %v", log, err)
	}
	if err := f.close(); err != nil || len(log) != 1 {
		t.Fatalf("%q, %v", log, err)
	}
}
