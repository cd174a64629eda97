package main

import (
	"crypto"
	"crypto/ecdsa"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Who may call, as the benchmark's identities say.
const (
	commonName = "kube-apiserver"
	issuer     = "kube-apiserver"
	audience   = "podgate"
	subject    = "kube-apiserver"
)

const maxCachedTokens = 1024

// Authenticator lets calls through whose certificate and token are the API server's. Tokens that were verified are kept
// until they expire.
type Authenticator struct {
	next   http.Handler
	keys   []crypto.PublicKey
	parser *jwt.Parser

	mutex    sync.RWMutex
	verified map[string]time.Time
}

func newAuthenticator(jwks string, next http.Handler) (*Authenticator, error) {
	keys, err := readKeys(jwks)
	if err != nil {
		return nil, err
	}
	return &Authenticator{
		next: next,
		keys: keys,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{"ES256", "RS256"}),
			jwt.WithIssuer(issuer),
			jwt.WithAudience(audience),
			jwt.WithSubject(subject),
			jwt.WithExpirationRequired(),
			jwt.WithLeeway(10*time.Second),
		),
		verified: map[string]time.Time{},
	}, nil
}

// ServeHTTP implements http.Handler.
func (authenticator *Authenticator) ServeHTTP(writer http.ResponseWriter, call *http.Request) {
	token, hasToken := strings.CutPrefix(call.Header.Get("Authorization"), "Bearer ")
	if !hasToken || !isAPIServer(call) || !authenticator.verify(token) {
		http.Error(writer, "Unauthorized", http.StatusUnauthorized)
		return
	}
	authenticator.next.ServeHTTP(writer, call)
}

func isAPIServer(call *http.Request) bool {
	return len(call.TLS.PeerCertificates) > 0 && call.TLS.PeerCertificates[0].Subject.CommonName == commonName
}

func (authenticator *Authenticator) verify(token string) bool {
	now := time.Now()
	authenticator.mutex.RLock()
	expires, known := authenticator.verified[token]
	authenticator.mutex.RUnlock()
	if known {
		return now.Before(expires)
	}
	var claims jwt.RegisteredClaims
	if _, err := authenticator.parser.ParseWithClaims(token, &claims, authenticator.candidates); err != nil {
		return false
	}
	authenticator.mutex.Lock()
	defer authenticator.mutex.Unlock()
	if len(authenticator.verified) >= maxCachedTokens {
		clear(authenticator.verified)
	}
	authenticator.verified[token] = claims.ExpiresAt.Time
	return true
}

// candidates returns the keys of the token's algorithm.
func (authenticator *Authenticator) candidates(token *jwt.Token) (any, error) {
	var set jwt.VerificationKeySet
	for _, key := range authenticator.keys {
		if _, isElliptic := key.(*ecdsa.PublicKey); isElliptic == (token.Method.Alg() == "ES256") {
			set.Keys = append(set.Keys, key)
		}
	}
	return set, nil
}
