// Command patcher sends requests to kube-apiserver, several at once over HTTP/1.1, and prints a line for each answer.
// It reads a Plan from its standard input.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

// Plan is what to send, to whom, and how many at once.
type Plan struct {
	URL         string    `json:"url"`
	CA          string    `json:"ca"`
	Certificate string    `json:"certificate"`
	Key         string    `json:"key"`
	Clients     int       `json:"clients"`
	Requests    []Request `json:"requests"`
}

// Request is one request; each is sent once.
type Request struct {
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	ContentType string          `json:"content_type"`
	Body        json.RawMessage `json:"body"`
}

func main() {
	var plan Plan
	if err := json.NewDecoder(os.Stdin).Decode(&plan); err != nil {
		fail(fmt.Errorf("plan: %w", err))
	}
	transport, err := plan.transport()
	if err != nil {
		fail(err)
	}
	client := &http.Client{Transport: transport}
	requests := make(chan Request)
	var clients sync.WaitGroup
	for range plan.Clients {
		clients.Go(func() {
			for request := range requests {
				if err := plan.send(client, request); err != nil {
					fail(err)
				}
				fmt.Println(request.Path)
			}
		})
	}
	for _, request := range plan.Requests {
		requests <- request
	}
	close(requests)
	clients.Wait()
}

// transport speaks HTTP/1.1, as Podgate's client does.
func (plan *Plan) transport() (*http.Transport, error) {
	authority, err := os.ReadFile(plan.CA)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(plan.Certificate, plan.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		MaxIdleConnsPerHost: plan.Clients,
	}, nil
}

func (plan *Plan) send(client *http.Client, request Request) error {
	sent, err := http.NewRequest(request.Method, plan.URL+request.Path, bytes.NewReader(request.Body))
	if err != nil {
		return err
	}
	sent.Header.Set("Content-Type", request.ContentType)
	answer, err := client.Do(sent)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: %s", request.Path, answer.Status, body)
	}
	return err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
