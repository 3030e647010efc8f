package seal_test

import (
	"errors"
	"testing"

	"junction/auth/seal"
)

func mustBox(t testing.TB, secret []byte, purpose string) *seal.Box {
	t.Helper()
	key, err := seal.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key.Box(purpose)
}

func TestOpenReturnsWhatWasSealed(t *testing.T) {
	secret := seal.NewSecret()
	for _, plain := range []string{"", "a", "2025-11-25 and more"} {
		sealed := mustBox(t, secret, "session").Seal([]byte(plain))
		// Another box with the same secret stands for another replica, or a restart.
		got, err := mustBox(t, secret, "session").Open(sealed)
		if err != nil || string(got) != plain {
			t.Errorf("Open(Seal(%q)) = %q, %v", plain, got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	secret := seal.NewSecret()
	box := mustBox(t, secret, "session")
	sealed := box.Seal([]byte("plain"))
	for name, open := range map[string]func() ([]byte, error){
		"another purpose": func() ([]byte, error) { return mustBox(t, secret, "cursor").Open(sealed) },
		"another secret":  func() ([]byte, error) { return mustBox(t, seal.NewSecret(), "session").Open(sealed) },
		"no base64":       func() ([]byte, error) { return box.Open("!" + sealed) },
		"cut short":       func() ([]byte, error) { return box.Open(sealed[:len(sealed)-4]) },
		"empty":           func() ([]byte, error) { return box.Open("") },
	} {
		if got, err := open(); !errors.Is(err, seal.ErrInvalid) {
			t.Errorf("%s: Open = %q, %v, want ErrInvalid", name, got, err)
		}
	}
	for i := range sealed {
		changed := []byte(sealed)
		changed[i] ^= 1
		if got, err := box.Open(string(changed)); err == nil {
			t.Errorf("Open of a string changed at %d = %q, want an error", i, got)
		}
	}
}

// TestASecondSecretIsAccepted: a key opens what each of its secrets has sealed, and seals with the first one.
// So each step of a rotation works beside the step before it.
func TestASecondSecretIsAccepted(t *testing.T) {
	old, next := seal.NewSecret(), seal.NewSecret()
	key := func(first []byte, accepted ...[]byte) *seal.Key {
		k, err := seal.NewKey(first, accepted...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	steps := []*seal.Key{key(old), key(old, next), key(next, old), key(next)}
	for i, sealing := range steps {
		sealed := sealing.Box("session").Seal([]byte("plain"))
		for j, opening := range steps {
			got, err := opening.Box("session").Open(sealed)
			if opens := err == nil && string(got) == "plain"; opens != (i/2 == j/2 || j == 1 || j == 2) {
				t.Errorf("sealed at step %d, at step %d Open = %q, %v", i, j, got, err)
			}
			if _, err := opening.Box("cursor").Open(sealed); !errors.Is(err, seal.ErrInvalid) {
				t.Errorf("for another purpose: %v", err)
			}
		}
	}
	if _, err := seal.NewKey(old, next[1:]); err == nil {
		t.Error("a second secret of another size is accepted")
	}
}

func FuzzOpen(f *testing.F) {
	secret := make([]byte, seal.SecretSize)
	box := mustBox(f, secret, "session")
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := box.Open(s); err == nil {
			t.Errorf("Open(%q) succeeded; nobody sealed it", s)
		}
	})
}
