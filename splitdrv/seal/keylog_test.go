package seal

import (
	"os"
	"path/filepath"
	"testing"
)

func TestKeyLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.log")
	keys, err := NewKeys(AES128GCM, [SecretSize]byte{0xa5, 31: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, session := range []string{"first", "second"} { // two processes, one after the other
		l, err := OpenKeyLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Add(session, keys); err != nil {
			t.Error(err)
		}
		if err := l.Add("clear", nil); err != nil {
			t.Error(err)
		}
	}
	const secret = "a500000000000000000000000000000000000000000000000000000000000001\n"
	got, err := os.ReadFile(path)
	want := "SPLITNIC_FRAMES first aes-128-gcm " + secret + "SPLITNIC_FRAMES second aes-128-gcm " + secret
	if err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", s.Mode(), err)
	}
	var none *KeyLog
	if err := none.Add("first", keys); err != nil {
		t.Error(err)
	}
	if _, err := OpenKeyLog(filepath.Join(path, "below a file")); err == nil {
		t.Error("a file that cannot be there was opened")
	}
	full, err := OpenKeyLog("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	if err := full.Add("first", keys); err == nil {
		t.Error("a full disk took a secret")
	}
}
