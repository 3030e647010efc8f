package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func mustRing(t *testing.T, text string) *Ring {
	t.Helper()
	r, err := ParseRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustVault(t *testing.T, r *Ring, purpose string) *Vault {
	t.Helper()
	return r.Vault(purpose)
}

// keyA and keyB are keys in two base64 alphabets.
var (
	keyA = "a:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, SecretSize))
	keyB = "b:" + base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, SecretSize))
)

func TestVault(t *testing.T) {
	old := mustVault(t, mustRing(t, keyA), "vault")
	both := mustVault(t, mustRing(t, keyB+", "+keyA), "vault")
	sealed := old.Seal([]byte("secret"), "users|1|name")
	if bytes.Equal(sealed, old.Seal([]byte("secret"), "users|1|name")) {
		t.Error("two seals of one text are the same")
	}
	for name, v := range map[string]*Vault{"the key": old, "a ring that has the key": both} {
		if plain, err := v.Open(sealed, "users|1|name"); err != nil || string(plain) != "secret" {
			t.Errorf("%s: Open = %q, %v; want the secret", name, plain, err)
		}
	}
	if !old.Current(sealed) || both.Current(sealed) || !both.Current(both.Seal(nil, "")) {
		t.Error("Current does not tell the first key from the others")
	}
	swapped := append([]byte(nil), sealed...)
	swapped[2] = 'b'
	for name, open := range map[string]func() ([]byte, error){
		"another place": func() ([]byte, error) { return old.Open(sealed, "users|2|name") },
		"another purpose": func() ([]byte,
			error) {
			return mustVault(t, mustRing(t, keyA), "other").Open(sealed, "users|1|name")
		},
		"another key": func() ([]byte,
			error) {
			return mustVault(t, mustRing(t, keyB), "vault").Open(sealed, "users|1|name")
		},
		"another id": func() ([]byte, error) { return both.Open(swapped, "users|1|name") },
		"one of the same id": func() ([]byte, error) {
			return mustVault(t, mustRing(t, "a"+keyB[1:]), "vault").Open(sealed, "users|1|name")
		},
		"nothing":   func() ([]byte, error) { return old.Open(nil, "users|1|name") },
		"its place": func() ([]byte, error) { return old.Open([]byte("\x02\x01a"), "users|1|name") },
	} {
		if plain, err := open(); !errors.Is(err, ErrInvalid) || plain != nil {
			t.Errorf("%s: Open = %q, %v; want %v", name, plain, err, ErrInvalid)
		}
	}
	for i := range sealed {
		changed := append([]byte(nil), sealed...)
		changed[i] ^= 1
		if plain, err := old.Open(changed, "users|1|name"); !errors.Is(err, ErrInvalid) {
			t.Errorf("byte %d changed: Open = %q, %v; want %v", i, plain, err, ErrInvalid)
		}
		if _, err := old.Open(sealed[:i], "users|1|name"); !errors.Is(err, ErrInvalid) {
			t.Errorf("cut after %d bytes: %v, want %v", i, err, ErrInvalid)
		}
	}
}

func TestParseRing(t *testing.T) {
	if got := mustRing(t, "\n "+keyA+"\r\n"+keyB+",\n").IDs(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("IDs = %q, want a and b", got)
	}
	const secret = "c2VjcmV0LXRoYXQtaXMtbm90LTMyLWJ5dGVz"
	for _, text := range []string{"", " ", ",", secret, "a:" + secret, ":" + keyA[2:], keyA + "," + keyA,
		"a b" + keyA[1:], strings.Repeat("a", 33) + keyA[1:], keyA + "x", "a:", keyA + "," + secret,
		"ä" + keyA[1:], keyA + ";" + keyB} {
		r, err := ParseRing(text)
		if err == nil {
			t.Errorf("ParseRing(%q) = %v, want an error", text, r.IDs())
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), keyA[2:]) {
			t.Errorf("the error %q tells the key", err)
		}
	}
}

func TestSecrets(t *testing.T) {
	r := mustRing(t, keyB+","+keyA)
	mac := r.Secrets("mac")
	if len(mac) != 2 || len(mac[0]) != SecretSize || bytes.Equal(mac[0], mac[1]) {
		t.Fatalf("Secrets = %x; want two of %d bytes", mac, SecretSize)
	}
	if other := r.Secrets("cookie"); bytes.Equal(mac[0], other[0]) {
		t.Error("two purposes have one secret")
	}
	if alone := mustRing(t, keyA).Secrets("mac"); !bytes.Equal(mac[1], alone[0]) {
		t.Error("a key has another secret in another ring")
	}
}

// TestPrintsTellKeysApart: a fingerprint is that of one key in each ring, and keys of one id have others.
func TestPrintsTellKeysApart(t *testing.T) {
	prints := mustRing(t, keyB+","+keyA).Prints()
	alone := mustRing(t, keyA).Prints()
	if len(prints) != 2 || !strings.HasPrefix(prints[0], "b:") || prints[1] != alone[0] {
		t.Errorf("Prints = %q, and of the second alone %q", prints, alone)
	}
	if same := mustRing(t, "a"+keyB[1:]).Prints()[0]; !strings.HasPrefix(same, "a:") || same == alone[0] {
		t.Errorf("another key of the id a has the print %q, too", same)
	}
	if print := strings.TrimPrefix(alone[0], "a:"); len(print) != 16 || strings.Trim(print, "0123456789abcdef") != "" ||
		strings.HasPrefix(print, "fbfb") {
		t.Errorf("the print is %q", print)
	}
}

func TestLoadRing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "master.key")
	first, made, err := LoadRing(file)
	if err != nil || !made {
		t.Fatalf("LoadRing = %v, %v; want a new ring", made, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's permissions are %v, %v; want 0600", info.Mode(), err)
	}
	again, made, err := LoadRing(file)
	if err != nil || made {
		t.Fatalf("LoadRing again = %v, %v; want the same ring", made, err)
	}
	sealed := mustVault(t, first, "vault").Seal([]byte("secret"), "")
	if plain, err := mustVault(t, again, "vault").Open(sealed, ""); err != nil || string(plain) != "secret" {
		t.Errorf("Open = %q, %v; want the secret", plain, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadRing(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("an empty file: %v, want an error that names it", err)
	}
	if _, _, err := LoadRing(filepath.Join(file, "x")); err == nil {
		t.Error("a ring was made in no folder")
	}
}

// FuzzVault opens values that no vault has sealed.
func FuzzVault(f *testing.F) {
	r, err := ParseRing(keyA)
	if err != nil {
		f.Fatal(err)
	}
	v := r.Vault("vault")
	f.Add([]byte{})
	f.Add([]byte{2, 255})
	f.Add([]byte{2, 1, 'a'})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := v.Open(sealed, "x"); err == nil {
			t.Errorf("%q opened as %q", sealed, plain)
		}
		v.Current(sealed)
	})
}

// TestMAC: a code is that of one text, one purpose and one ring, and any key of the ring verifies it.
func TestMAC(t *testing.T) {
	old := mustRing(t, keyA).MAC("rows")
	both := mustRing(t, keyB+","+keyA).MAC("rows")
	code := old.Sum([]byte("text"))
	for name, m := range map[string]*MAC{"the key": old, "a ring that has the key": both} {
		if err := m.Verify(code, []byte("text")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !old.Current(code) || both.Current(code) || !both.Current(both.Sum(nil)) {
		t.Error("Current does not tell the first key from the others")
	}
	otherKey := mustRing(t, keyB).MAC("rows")
	for name, err := range map[string]error{
		"another text":    old.Verify(code, []byte("texts")),
		"no text":         old.Verify(code, nil),
		"another purpose": mustRing(t, keyA).MAC("columns").Verify(code, []byte("text")),
		"another key":     otherKey.Verify(code, []byte("text")),
		"no code":         old.Verify(nil, []byte("text")),
		"a sealed value":  old.Verify(mustRing(t, keyA).Vault("rows").Seal([]byte("text"), ""), []byte("text")),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want %v", name, err, ErrInvalid)
		}
	}
	for i := range code {
		changed := bytes.Clone(code)
		changed[i] ^= 1
		if err := old.Verify(changed, []byte("text")); !errors.Is(err, ErrInvalid) {
			t.Errorf("byte %d changed: %v, want %v", i, err, ErrInvalid)
		}
		if err := old.Verify(code[:i], []byte("text")); !errors.Is(err, ErrInvalid) {
			t.Errorf("cut after %d bytes: %v, want %v", i, err, ErrInvalid)
		}
	}
}
