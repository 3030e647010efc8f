package keyfile

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// inPEM returns a key as openssl writes it.
func inPEM(t *testing.T, key crypto.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func curve(t *testing.T, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestKindsOfKeys: each kind of key that openssl makes is read, with the algorithm that belongs to it.
func TestKindsOfKeys(t *testing.T) {
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256 := curve(t, elliptic.P256())
	old, err := x509.MarshalECPrivateKey(p256)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		inPEM(t, big):                       "RS256 PS256",
		inPEM(t, p256):                      "ES256",
		inPEM(t, curve(t, elliptic.P384())): "ES384",
		inPEM(t, curve(t, elliptic.P521())): "ES512",
		inPEM(t, edwards):                   "EdDSA",
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(big)})): "RS256 PS256",
		"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" +
			string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: old})): "ES256",
	} {
		file := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := Read(file)
		if err != nil || len(keys) != 1 || len(keys[0].KeyID) != 43 {
			t.Errorf("%s: %d keys, %v", want, len(keys), err)
			continue
		}
		var got []string
		for _, one := range Algorithms(keys[0].Key) {
			got = append(got, string(one))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the algorithms are %q, want %s", got, want)
		}
	}
}

// TestBadKeyFiles: a file that is half written, readable by others, or no key of use has its reason, and the
// reason has nothing of the file.
func TestBadKeyFiles(t *testing.T) {
	good := inPEM(t, curve(t, elliptic.P256()))
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skipf("this Go makes no small keys: %v", err)
	}
	for want, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"other users of this machine can read":   {good, 0o644},
		"a part in PEM without its end":          {good[:len(good)-20], 0o600},
		"second: a part in PEM without":          {good + good[:60], 0o600},
		"no private key in PEM":                  {"canary-text\n", 0o600},
		"empty: no private key in PEM":           {"", 0o600},
		"a key that cannot be read":              {"-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n", 0o600},
		"a key with a password":                  {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nY2FuYXJ5\n-----END ENCRYPTED PRIVATE KEY-----\n", 0o600},
		"P-224: a key that cannot be read":       {inPEM(t, curve(t, elliptic.P224())), 0o600},
		"an RSA key of 1024 bits":                {inPEM(t, small), 0o600},
		"more than 8 keys":                       {strings.Repeat(good, 9), 0o600},
		"larger than 64 KiB":                     {strings.Repeat("#", maxFile+1), 0o600},
		"public: no private key in PEM":          {"-----BEGIN PUBLIC KEY-----\nY2FuYXJ5\n-----END PUBLIC KEY-----\n", 0o600},
		"a certificate: no private key in PEM (": {"-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n", 0o600},
	} {
		if file.mode != 0o600 && runtime.GOOS == "windows" {
			continue
		}
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
		if _, part, both := strings.Cut(want, ": "); both {
			want = part
		}
		keys, err := Read(path)
		if keys != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "Y2Fu") {
			t.Errorf("%d keys, %v; want %q", len(keys), err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "cannot read") {
		t.Errorf("a missing file: %v", err)
	}
}
