// Command controllerruntime is the webhook of package policy as an operator has it that kubebuilder laid out: typed
// Pods, a defaulter and a validator.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	folder := flag.String("certificates", ".", "folder of server.crt, server.key and ca.crt, the CA of clients")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	// The check that it has started shows no certificate, about which the server would complain.
	log.SetOutput(io.Discard)
	if err := serve(ctrl.SetupSignalHandler(), *folder); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, folder string) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{
		Host:         "127.0.0.1",
		Port:         port,
		CertDir:      folder,
		CertName:     "server.crt",
		KeyName:      "server.key",
		ClientCAName: "ca.crt",
		TLSOpts:      []func(*tls.Config){onlyTLS13},
	})
	server.Register("/mutate", admission.WithDefaulter(scheme, placement{}))
	server.Register("/validate", admission.WithValidator(scheme, placement{}))
	go announce(server, port)
	return server.Start(ctx)
}

func onlyTLS13(config *tls.Config) {
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = []string{"http/1.1"}
}

// freePort returns one, as the server takes none by itself.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if !isTCP {
		return 0, errors.New("not a TCP address")
	}
	return address.Port, listener.Close()
}

// announce prints the address when the server listens.
func announce(server webhook.Server, port int) {
	started := server.StartedChecker()
	for started(&http.Request{}) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("127.0.0.1:%d\n", port)
}
