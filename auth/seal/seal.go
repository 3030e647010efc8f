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
	"slices"
)

// SecretSize is the size of a secret in bytes.
const SecretSize = 32

// ErrInvalid means that a value was not sealed with this key for this purpose, or was changed.
var ErrInvalid = errors.New("not sealed with this key")

// Key seals and opens strings. It seals with its first secret, and opens what any of its secrets has
// sealed. It is immutable, and may be used by several goroutines.
type Key struct{ secrets [][]byte }

// NewKey returns the key of secrets of SecretSize bytes. Replicas open each other's strings if each has
// the first secret of the others.
func NewKey(first []byte, accepted ...[]byte) (*Key, error) {
	k := &Key{}
	for _, secret := range append([][]byte{first}, accepted...) {
		if len(secret) != SecretSize {
			return nil, fmt.Errorf("a secret must have %d bytes, not %d", SecretSize, len(secret))
		}
		k.secrets = append(k.secrets, slices.Clone(secret))
	}
	return k, nil
}

// NewSecret returns a random secret.
func NewSecret() []byte {
	secret := make([]byte, SecretSize)
	rand.Read(secret) // never fails, see crypto/rand
	return secret
}

// Secret returns a secret of SecretSize bytes for a purpose, which tells nothing about the key. It is
// that of the first secret of the key.
func (k *Key) Secret(purpose string) []byte { return derive(k.secrets[0], "secret "+purpose) }

// Secrets returns the secret for a purpose of each secret of the key, in order.
func (k *Key) Secrets(purpose string) (all [][]byte) {
	for _, secret := range k.secrets {
		all = append(all, derive(secret, "secret "+purpose))
	}
	return all
}

// derive returns a key of SecretSize bytes for a purpose.
func derive(secret []byte, purpose string) []byte {
	return must(hkdf.Key(sha256.New, secret, nil, "junction "+purpose, SecretSize))
}

// must is for functions that fail only for keys of another size than SecretSize.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Box seals strings for one purpose; boxes of other purposes cannot open them.
type Box struct{ aeads []cipher.AEAD } // the first seals, all open

// format is the first byte of a Box's output.
const format = 1

// Box returns the box for a purpose. Keep it, since making it takes time.
func (k *Key) Box(purpose string) *Box {
	b := &Box{}
	for _, secret := range k.secrets {
		b.aeads = append(b.aeads, must(cipher.NewGCMWithRandomNonce(must(aes.NewCipher(derive(secret, purpose))))))
	}
	return b
}

// Seal returns plain as a string of letters, digits, - and _, which reveals only its length. Two
// seals of a text differ.
func (b *Box) Seal(plain []byte) string {
	first := b.aeads[0]
	out := make([]byte, 1, 1+first.Overhead()+len(plain))
	out[0] = format
	return base64.RawURLEncoding.EncodeToString(first.Seal(out, nil, plain, out[:1]))
}

// Open returns the sealed text, or ErrInvalid.
func (b *Box) Open(sealed string) ([]byte, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(text) < 1 || text[0] != format {
		return nil, ErrInvalid
	}
	for _, aead := range b.aeads {
		if plain, err := aead.Open(nil, nil, text[1:], text[:1]); err == nil {
			return plain, nil
		}
	}
	return nil, ErrInvalid
}
