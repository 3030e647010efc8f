// Package keyfile reads private keys with which Junction signs, from a file in PEM.
package keyfile

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"junction/upstream/files"
	"junction/upstream/shell"
)

const (
	maxFile  = 64 << 10
	most     = 8 // keys of a file
	leastRSA = 2048
)

// Read returns the private keys of a file, the first of which signs. The ID of each is its thumbprint (RFC
// 7638). The error names the file, and has nothing of its content.
func Read(file string) (keys []jose.JSONWebKey, err error) {
	if files.Readable(file) {
		return nil, fmt.Errorf("other users of this machine can read %s; run: chmod 600 %s", file, shell.Quote(file))
	}
	text, err := files.Read(file, maxFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue // parameters, or a certificate
		}
		key, err := parse(block)
		if err != nil {
			return nil, fmt.Errorf("%s %w", file, err)
		}
		keys = append(keys, key)
	}
	switch {
	case strings.Contains(string(text), "-----BEGIN "):
		return nil, fmt.Errorf("%s has a part in PEM without its end; write the file in one step", file)
	case len(keys) == 0:
		return nil, fmt.Errorf("%s has no private key in PEM (-----BEGIN PRIVATE KEY-----)", file)
	case len(keys) > most:
		return nil, fmt.Errorf("%s has more than %d keys; remove old ones", file, most)
	}
	return keys, nil
}

// parse returns a private key. The error follows the name of the file.
func parse(block *pem.Block) (k jose.JSONWebKey, err error) {
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		return k, errors.New("has a key with a password; write it without one, such as by openssl pkey")
	case block.Type == "RSA PRIVATE KEY":
		k.Key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		k.Key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		k.Key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if small, ok := k.Key.(*rsa.PrivateKey); ok && err == nil && small.N.BitLen() < leastRSA {
		return k, fmt.Errorf("has an RSA key of %d bits; use %d or more", small.N.BitLen(), leastRSA)
	}
	if err != nil || len(Algorithms(k.Key)) == 0 {
		return k, errors.New("has a key that cannot be read; use a key of RSA, of the curves P-256, P-384 and P-521, " +
			"or of Ed25519")
	}
	sum, err := k.Thumbprint(crypto.SHA256)
	if err != nil {
		return k, errors.New("has a key without a thumbprint")
	}
	k.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	return k, nil
}

// Algorithms returns the algorithms for signatures of a private key, the usual one first; nil if the key is
// of no kind that Junction uses.
func Algorithms(key any) []jose.SignatureAlgorithm {
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return []jose.SignatureAlgorithm{jose.RS256, jose.PS256}
	case ed25519.PrivateKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}
	case *ecdsa.PrivateKey:
		switch key.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}
		case elliptic.P521():
			return []jose.SignatureAlgorithm{jose.ES512}
		}
	}
	return nil
}
