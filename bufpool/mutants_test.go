//go:build !race

package bufpool_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a plausible mistake in a rule of this package, and the test that must find it. Of the
// runs of the model in TestFlow, at least one must fail.
type mutant struct {
	mistake  string
	file     string
	old, new string // text that the file contains once, and its replacement
	pkg      string // directory of the test
	test     string
}

const (
	here  = "."
	model = "../splitdrv/messaging/flowmodel"
)

// mutants has mistakes in the rules of flow control. If the code of a rule changes, its mutants
// have to be changed too.
var mutants = []mutant{
	{"an update goes for each element", "elements.go",
		"return len(e.back) >= e.due", "return len(e.back) > 0", model, "TestFlow/imm"},
	{"a quarter is rounded down", "elements.go",
		"(n + protocol.UpdatesPerPool - 1) / protocol.UpdatesPerPool", "max(1, n/protocol.UpdatesPerPool)",
		here, "TestPoolModel"},
	{"an element keeps its last key", "credits.go",
		"c.keys[elem] = protocol.NextKey(c.keys[elem])", "_ = protocol.NextKey(c.keys[elem])", here, "TestKeys"},
	{"an element that is taken is not out", "credits.go",
		"c.out[elem].Store(true)", "c.out[elem].Store(false)", model, "TestFlow/imm"},
	{"an element that is returned is still out", "credits.go",
		"!c.out[elem].CompareAndSwap(true, false)", "!c.out[elem].Load()", here, "TestCreditsRefuse"},
	{"what went back is not lent", "elements.go",
		"e.state[elem] = lent", "e.state[elem] = returning", model, "TestFlow/imm"},
	{"an element is consumed twice", "elements.go",
		"if e.state[elem] != lent {", "if e.state[elem] == returning {", here, "TestElementsRefuse"},
	{"the reply does not end the peer's flush", "step.go",
		"p.peerFlush.out = false", "p.peerFlush.out = true", model, "TestFlow/imm"},
	{"both sides invalidate a window", "lend.go",
		"case !p.cfg.Invalidates:", "case true:", model, "TestFlow/imm"},
	{"a pool is deregistered while it is drained", "lend.go",
		"if l.state != localRevoking {", "if l.state < localFlushing {", here, "TestPools"},
	{"two requests for a pool at a time", "borrow.go",
		"if p.asked.open || p.ending", "if p.ending", model, "TestFlow/imm"},
	{"two flushes at a time, to give back", "borrow.go",
		"running) || own.awaited {", "running) {", model, "TestFlow/imm"},
	{"two flushes at a time, to take back", "lend.go",
		"|| tight) && !p.ownFlush.awaited", "|| tight)", model, "TestFlow/imm"},
	{"two flushes at a time, at the end", "step.go",
		"	if !p.ownFlush.awaited {\n		var", "	{\n		var", model, "TestFlow/imm"},
	{"at the end a pool is given back while another one is", "step.go",
		"if len(p.ownFlush.stopping)+len(p.ownFlush.remote) == 0 {",
		"if len(p.ownFlush.remote) == 0 {", model, "TestFlow/imm"},
	{"a pool is given back while transfers are on their way", "borrow.go",
		"return !r.stopped }", "return r == nil }", here, "TestPools"},
	{"a pool that was given back stays in use", "step.go",
		"		p.close(r)\n		if r.Invalidate {", "		if r.Invalidate {", model, "TestFlow/imm"},
	{"a pool that was taken back stays in use", "step.go",
		"			p.close(r)\n			p.peerFlush.pools++", "			p.peerFlush.pools++", model, "TestFlow/imm"},
	{"the first pools are offered before all are ready", "lend.go",
		"if p.unready--; p.unready > 0 {", "if p.unready--; p.unready < 0 {", model, "TestFlow/imm"},
	{"a pool is offered before its windows are bound", "step.go",
		"case len(l.Windows) > 0:\n			return", "case len(l.Windows) > 1<<16:\n			return", model, "TestFlow/imm"},
	{"a pool does not get its key", "borrow.go",
		"r.keyless = false\n	r.rkey = key", "r.keyless = false", model, "TestFlow/imm"},
	{"a pool is used before its key has come", "borrow.go",
		"k.waiting = append(k.waiting, r)\n		return false", "k.waiting = append(k.waiting, r)\n		return true",
		here, "TestPools"},
	{"a key is that of the pool before", "borrow.go",
		"k.early = append(k.early, key)", "k.early = append([]uint32{key}, k.early...)", here, "TestPools"},
	{"closed pools are forgotten at once", "borrow.go",
		"if pools <= p.cfg.KeptPools && elements", "if pools <= 0 && elements", model, "TestFlow/imm"},
	{"the newest closed pool is forgotten", "borrow.go",
		"r.closed < oldest.closed", "r.closed > oldest.closed", here, "TestPools"},
	{"books are used again that the sender still uses", "borrow.go",
		"if oldest.stopped {", "if true {", here, "TestPools"},
	{"books of the same reference are used again too early", "borrow.go",
		"old != nil && old.stopped {", "old != nil {", here, "TestPools"},
	{"what was indicated is not acknowledged", "batch.go",
		"if w.Indicated {", "if w.Indicated && !w.Indicated {", here, "TestBatches"},
	{"a serialised transfer is not acknowledged", "returns.go",
		"r.urgent || r.Mode.Immediate() || r", "r.urgent || r", model, "TestFlow/imm"},
	{"indications are acknowledged too late", "returns.go",
		"indicatesPerUpdate = protocol.IndicatesPerChannel / 2", "indicatesPerUpdate = protocol.IndicatesPerChannel + 1",
		model, "TestFlow/indicate"},
	{"a pool goes before its indications are acknowledged", "returns.go",
		"r.urgent || r.messages > 0", "r.urgent", here, "TestReturns"},
	{"an update that does not fit is not sent", "returns.go",
		"if len(out) > 0 {\n				return", "if len(out) >= 0 {\n				return", here, "TestReturns"},
	{"an update of any elements acknowledges all", "returns.go",
		"if r.latest == nil || len(r.latest.Elements.Returning()) == 0 {", "if true {", here, "TestReturns"},
	{"an update begins with another pool than that indicated last", "returns.go",
		"if r.urgent && r.latest != nil {", "if r.urgent && r.latest == nil {", here, "TestReturns"},
	{"a window is invalidated though nobody agreed to that", "step.go",
		"if r.Invalidate {", "if !r.Invalidate {", model, "TestFlow/imm"},
	{"the peer's flush of several pools is answered after the first", "step.go",
		"left: len(e.Refs)}", "left: min(1, len(e.Refs))}", here, "TestPools"},
	{"at the end a pool is stopped before its key has come", "step.go",
		"r.state == remoteInUse && !r.keyless {", "r.state == remoteInUse {", here, "TestPools"},
	{"an idle pool is stopped before its key has come", "borrow.go",
		"len(p.ownFlush.stopping) == 0 && !r.keyless {", "len(p.ownFlush.stopping) == 0 {", here, "TestPools"},
	{"at the end the largest pools go first", "step.go",
		"Compare(a.ElementSize(), b.ElementSize())", "Compare(b.ElementSize(), a.ElementSize())", here, "TestPools"},
	{"a flush of several pools ends only the first", "step.go",
		"for _, l := range local {", "for _, l := range local[:min(1, len(local))] {", model, "TestFlow/imm"},
	{"a flush request names more pools than fit", "step.go",
		"p.flushLocal(next[:min(len(next), protocol.MaxFlushPools)], out)", "p.flushLocal(next, out)", here, "TestEndOfManyPools"},
	{"a pool waits for what another one acknowledges", "returns.go",
		"if r.latest != l {", "if r.latest == nil {", here, "TestReturns"},
	{"the pool that was asked for is not known as such", "borrow.go",
		"p.asked.sizes[e.Channel-1] = LentSize(size)", "p.asked.sizes[e.Channel-1] = 0", here, "TestPools"},
	{"pauses between requests stay as short as the first", "borrow.go",
		"min(2*p.asked.patience, p.cfg.PatienceMax)", "p.asked.patience", here, "TestPools"},
	{"a pool under a reference in use is taken", "borrow.go",
		"old != nil && old.state != remoteClosed {", "old != nil && old.state == remoteFlushing {", here, "TestPools"},
	{"a flush before the reply to the last is taken", "step.go",
		"	if p.peerFlush.out {\n", "	if p.peerFlush.out && len(e.Refs) == 0 {\n", here, "TestPools"},
	{"a key of another channel is taken", "borrow.go",
		"k := &p.keys[channel-1]", "k := &p.keys[0]", model, "TestFlow/imm"},
}

// TestMutants makes each mistake in a copy of the file, and expects the named test to fail.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.mistake, func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(source, []byte(m.old)); n != 1 {
				t.Fatalf("%s has the text %q %d times instead of once", m.file, m.old, n)
			}
			binary := m.build(t, bytes.Replace(source, []byte(m.old), []byte(m.new), 1))
			cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+strings.ReplaceAll(m.test, "/", "$/^")+"$",
				"-test.timeout=1m")
			cmd.Dir = m.pkg
			out, err := cmd.CombinedOutput()
			name, _, _ := strings.Cut(m.test, "/")
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: "+name)) {
				t.Errorf("%s does not find it: %v\n%s", m.test, err, out)
			}
		})
	}
}

// build builds the tests of pkg with the mutant's file replaced by source.
func (m *mutant) build(t *testing.T, source []byte) (binary string) {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, m.file)
	original, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{changed: source, filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "tests")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-o", binary,
		"-overlay="+filepath.Join(dir, "overlay.json"), ".")
	cmd.Dir = m.pkg
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return binary
}
