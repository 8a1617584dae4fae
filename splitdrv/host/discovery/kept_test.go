package discovery

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errTimeout = errors.New("no answer")

// keptText returns the contents of the file with the kept answer for keptName, or "" if there is
// none.
func keptText(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "_splitnic._tcp.x.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

const keptName = "srv:_Splitnic._tcp.x."

// TestKept expects a process to use the answer that DNS gave to the previous process, from the
// first failure of DNS until its first answer, and not if the answer is older than maxAge.
func TestKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state/dns") // does not exist yet
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		before := script{keep: dir}
		before.says(time.Minute, "a:1:1 b:2:1")
		d, end := before.begin(t, keptName)
		if list(d) == "" || d.Status()[0].Kept {
			t.Errorf("%q, %+v", list(d), d.Status())
		}
		end()

		// DNS answers after a minute: the kept answer is not used meanwhile.
		slow := script{keep: dir, delay: time.Minute}
		slow.says(time.Hour, "c:1:1")
		d, end = slow.begin(t, keptName)
		pass(59 * time.Second)
		if units, asked, _ := d.Units(); asked || len(units) > 0 {
			t.Errorf("%q is used before DNS has had time to answer", units)
		}
		pass(2 * time.Second)
		if !strings.HasPrefix(list(d), "c:") {
			t.Errorf("%q", list(d))
		}
		end()

		// DNS fails: the kept answer is used.
		pass(maxAge - time.Hour)
		mute := script{keep: dir}
		mute.fails(errTimeout)
		d, end = mute.begin(t, keptName)
		status := d.Status()[0]
		if !strings.HasPrefix(list(d), "c:") || !status.Kept || status.Error == "" || status.Units != 1 ||
			status.Answered.Before(began) || time.Since(status.Answered) < maxAge-2*time.Hour {
			t.Errorf("%q, %+v", list(d), status)
		}
		mute.says(time.Minute, "d:1:1")
		pass(time.Minute)
		if !strings.HasPrefix(list(d), "d:") || d.Status()[0].Kept {
			t.Errorf("after the first answer: %q, %+v", list(d), d.Status())
		}
		end()
		pass(maxAge + time.Hour)

		// DNS fails, and the kept answer is too old.
		late := script{keep: dir}
		late.fails(errTimeout)
		d = late.run(t, keptName)
		if units, asked, _ := d.Units(); !asked || len(units) > 0 || d.Status()[0].Kept {
			t.Errorf("%q, %+v", units, d.Status())
		}
	})
}

// TestKeptFile expects an answer to be written once an hour, and at once if it is different. A file
// that cannot be read is ignored, and a directory that cannot be written is not an error.
func TestKeptFile(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := script{keep: dir}
		s.says(time.Minute, "a:1:1 b:1:1")
		s.run(t, keptName)
		first := keptText(t, dir)
		s.says(time.Minute, "b:1:1 a:1:1")
		pass(30 * time.Minute)
		if got := keptText(t, dir); got != first || first == "" {
			t.Errorf("written again:\n%s%s", first, got)
		}
		pass(31 * time.Minute)
		second := keptText(t, dir)
		if second == first {
			t.Error("what is kept grows old, although DNS answers")
		}
		s.says(time.Minute, "a:1:1 b:1:2")
		pass(2 * time.Minute)
		if got := keptText(t, dir); got == second {
			t.Error("another answer was not kept")
		}
	})
	for name, text := range map[string]string{
		"damaged": `{"version": 1, "records": [`, "another version": strings.Replace(keptText(t, dir), `"version": 1`,
			`"version": 2`, 1),
		"no name": strings.ReplaceAll(keptText(t, dir), `"target": "a`, `"target": "a b`),
		"no port": strings.ReplaceAll(keptText(t, dir), `"port": `, `"port": 0, "was": `), "empty": "",
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "_splitnic._tcp.x.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := script{keep: dir}
				s.fails(errTimeout)
				d := s.run(t, keptName)
				if units, asked, _ := d.Units(); !asked || len(units) > 0 {
					t.Errorf("%q of\n%s", units, text)
				}
				s.says(time.Minute, "a:1:1")
				pass(time.Minute)
				if k, err := shelf(dir).get("_splitnic._tcp.x", time.Now()); err != nil || len(k.Records) != 1 {
					t.Errorf("%+v, %v", k, err)
				}
			})
		})
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := script{keep: file}
		s.says(time.Minute, "a:1:1")
		if d := s.run(t, keptName); !strings.HasPrefix(list(d), "a:") || d.Status()[0].Error != "" {
			t.Errorf("%q, %+v", list(d), d.Status())
		}
	})
}

// TestKeptAgain keeps the same answer again and again. It expects the file to be written again after an
// hour, and at once if a clock was ahead.
func TestKeptAgain(t *testing.T) {
	s, now := shelf(t.TempDir()), time.Unix(1_700_000_000, 0).UTC()
	records := []Record{{Port: 1, Target: "a"}}
	for _, step := range []struct{ at, want time.Duration }{
		{2 * rekeep, 2 * rekeep}, {0, 0}, {rekeep - time.Second, 0}, {rekeep, rekeep},
	} {
		if err := s.put("x", records, nil, now.Add(step.at)); err != nil {
			t.Fatal(err)
		}
		k, err := s.get("x", now)
		if err != nil || !k.Answered.Equal(now.Add(step.want)) {
			t.Errorf("kept after %v: it is from %v, want %v: %v", step.at, k.Answered.Sub(now), step.want, err)
		}
	}
}
