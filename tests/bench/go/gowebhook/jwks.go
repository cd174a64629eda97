package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
)

// publicKey is one of a JWKS.
type publicKey struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
	N   string `json:"n"`
	E   string `json:"e"`
}

// readKeys returns the keys of a JWKS file, of ES256 and RS256.
func readKeys(path string) ([]crypto.PublicKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []publicKey `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keys := make([]crypto.PublicKey, 0, len(set.Keys))
	for index, key := range set.Keys {
		parsed, err := key.parse()
		if err != nil {
			return nil, fmt.Errorf("%s: keys[%d]: %w", path, index, err)
		}
		keys = append(keys, parsed)
	}
	return keys, nil
}

func (key *publicKey) parse() (crypto.PublicKey, error) {
	switch {
	case key.Kty == "EC" && key.Crv == "P-256":
		x, y := integer(key.X), integer(key.Y)
		if x == nil || y == nil {
			return nil, fmt.Errorf("x, y: not base64url")
		}
		point := append([]byte{4}, append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)...)
		return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	case key.Kty == "RSA":
		n, e := integer(key.N), integer(key.E)
		if n == nil || e == nil {
			return nil, fmt.Errorf("n, e: not base64url")
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
	}
	return nil, fmt.Errorf("kty %q, crv %q: neither EC P-256 nor RSA", key.Kty, key.Crv)
}

func integer(encoded string) *big.Int {
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	return new(big.Int).SetBytes(decoded)
}
