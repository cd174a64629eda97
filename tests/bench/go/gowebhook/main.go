// Command gowebhook is a mutating and validating admission webhook on Go's standard library: what others are compared
// with. It places Pods of one namespace as package policy says.
//
// With --jwt it authenticates callers by token, and with --redis it charges each Pod to a quota in Redis.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func main() {
	var (
		folder = flag.String("certificates", ".", "folder of server.crt, server.key and ca.crt, the CA of clients")
		jwks   = flag.String("jwt", "", "JWKS file: calls need a token that one of its keys signed")
		redis  = flag.String("redis", "", "URL of a Redis: Pods are charged to a quota there")
		script = flag.String("script", "", "file of the Lua script that charges them")
		empty  = flag.Bool("empty", false, "answer a constant: shows what the load generator can do")
	)
	flag.Parse()
	if err := serve(*folder, *jwks, *redis, *script, *empty); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(folder, jwks, redis, script string, empty bool) error {
	if empty {
		return listen(folder, http.HandlerFunc(answerConstant))
	}
	webhook := &Webhook{}
	var err error
	if redis != "" {
		if webhook.quota, err = newQuota(redis, script); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("POST /mutate", webhook.handler(webhook.mutate))
	mux.Handle("POST /validate", webhook.handler(webhook.validate))
	var handler http.Handler = mux
	if jwks != "" {
		if handler, err = newAuthenticator(jwks, mux); err != nil {
			return err
		}
	}
	return listen(folder, handler)
}

func listen(folder string, handler http.Handler) error {
	config, err := tlsConfig(folder)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return server.ServeTLS(listener, "", "")
}

func tlsConfig(folder string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "server.crt"), filepath.Join(folder, "server.key"))
	if err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(bundle) {
		return nil, errors.New("ca.crt has no certificate")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"http/1.1"},
	}, nil
}
