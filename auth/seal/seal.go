// Package seal encrypts and authenticates values: session ids, cursors and other strings that
// clients carry (Key, Box), and secrets and rows in the store (Ring, Vault, MAC).
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// SecretSize is the size of a secret in bytes.
const SecretSize = 32

// ErrInvalid means that a value was not sealed with this key for this purpose, or was changed.
var ErrInvalid = errors.New("not sealed with this key")

// Key seals and opens strings. It is immutable, and may be used by several goroutines.
type Key struct{ secret []byte }

// NewKey returns the key of a secret of SecretSize bytes. Replicas with the same secret open each
// other's strings.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) != SecretSize {
		return nil, fmt.Errorf("a secret must have %d bytes, not %d", SecretSize, len(secret))
	}
	return &Key{append([]byte(nil), secret...)}, nil
}

// NewSecret returns a random secret.
func NewSecret() []byte {
	secret := make([]byte, SecretSize)
	rand.Read(secret) // never fails, see crypto/rand
	return secret
}

// Secret returns a secret of SecretSize bytes for a purpose, which tells nothing about the key.
func (k *Key) Secret(purpose string) []byte { return k.derive("secret " + purpose) }

// derive returns a key of SecretSize bytes for a purpose.
func (k *Key) derive(purpose string) []byte {
	return must(hkdf.Key(sha256.New, k.secret, nil, "junction "+purpose, SecretSize))
}

// must is for functions that fail only for keys of another size than SecretSize.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Box seals strings for one purpose; boxes of other purposes cannot open them.
type Box struct{ aead cipher.AEAD }

// format is the first byte of a Box's output.
const format = 1

// Box returns the box for a purpose. Keep it, since making it takes time.
func (k *Key) Box(purpose string) *Box {
	return &Box{must(cipher.NewGCMWithRandomNonce(must(aes.NewCipher(k.derive(purpose)))))}
}

// Seal returns plain as a string of letters, digits, - and _, which reveals only its length. Two
// seals of a text differ.
func (b *Box) Seal(plain []byte) string {
	out := make([]byte, 1, 1+b.aead.Overhead()+len(plain))
	out[0] = format
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(out, nil, plain, out[:1]))
}

// Open returns the sealed text, or ErrInvalid.
func (b *Box) Open(sealed string) ([]byte, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(text) < 1 || text[0] != format {
		return nil, ErrInvalid
	}
	plain, err := b.aead.Open(nil, nil, text[1:], text[:1])
	if err != nil {
		return nil, ErrInvalid
	}
	return plain, nil
}
