package seal_test

import (
	"errors"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
)

// Nothing opens but what was sealed by the same key for the same purpose, and
// no byte of it may change.
func TestOpen(t *testing.T) {
	key := newKey(t, 1)
	type state struct{ Task string }
	sealed, err := key.Seal("call", state{"t1"})
	if err != nil {
		t.Fatal(err)
	}
	var got state
	if err := key.Open("call", sealed, &got); err != nil || got.Task != "t1" {
		t.Fatalf("the control: %+v, %v", got, err)
	}
	for name, open := range map[string]func() error{
		"another purpose": func() error { return key.Open("session", sealed, &got) },
		"another key":     func() error { return newKey(t, 2).Open("call", sealed, &got) },
		"nothing":         func() error { return key.Open("call", "", &got) },
		"no base64":       func() error { return key.Open("call", sealed+"=", &got) },
		"cut":             func() error { return key.Open("call", sealed[:len(sealed)-4], &got) },
	} {
		if err := open(); !errors.Is(err, seal.ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range sealed {
		changed := []byte(sealed)
		changed[i] ^= 1
		if err := key.Open("call", string(changed), &got); !errors.Is(err, seal.ErrSealed) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	if again, _ := key.Seal("call", state{"t1"}); again == sealed {
		t.Error("two seals of the same are the same")
	}
	if _, err := seal.New([]byte("short")); err == nil {
		t.Error("a short key is a key")
	}
}

func newKey(t *testing.T, first byte) *seal.Key {
	t.Helper()
	secret := make([]byte, seal.KeySize)
	secret[0] = first
	key, err := seal.New(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
