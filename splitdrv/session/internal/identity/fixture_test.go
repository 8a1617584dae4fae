package identity

import "testing"

func newKey(t testing.TB) *Key {
	t.Helper()
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}
