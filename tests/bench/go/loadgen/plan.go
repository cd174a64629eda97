package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// Plan is what to send, to whom, and for how long.
type Plan struct {
	// Addresses are used in turn by the connections.
	Addresses   []string    `json:"addresses"`
	Credentials Credentials `json:"credentials"`

	Connections int `json:"connections"`
	// NewConnections makes a connection for each Pod; otherwise connections are kept.
	NewConnections bool `json:"new_connections"`
	// Rate is in Pods per second. Without one, each connection sends its next Pod after the answer about the last.
	Rate          float64 `json:"rate"`
	WarmUpSeconds float64 `json:"warm_up_seconds"`
	Seconds       float64 `json:"seconds"`

	// Processes are those whose CPU is measured, by the name of what they are part of.
	Processes map[string][]int `json:"processes"`

	Placeholders Placeholders `json:"placeholders"`
	// Calls are made in turn about each Pod.
	Calls []CallPlan `json:"calls"`
}

// Credentials are files, and a token that may be empty.
type Credentials struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Token       string `json:"token"`
}

// Placeholders stand in bodies for values that are new in each review or Pod. The new ones have the same length.
type Placeholders struct {
	ReviewUID string `json:"review_uid"`
	PodUID    string `json:"pod_uid"`
	// Suffix is of the Pod's name.
	Suffix string `json:"suffix"`
}

// CallPlan is one call about a Pod: its bodies are used in turn, and all answers must be alike.
type CallPlan struct {
	Path   string   `json:"path"`
	Bodies []string `json:"bodies"`
	Expect Expect   `json:"expect"`
	// Traceparent is the header of that name, which is not sent if it is empty.
	Traceparent string `json:"traceparent"`
}

// Expect is what an answer must be.
type Expect struct {
	// Created is true for kube-apiserver, which creates the Pod; only Text is expected of its answer.
	Created bool `json:"created"`
	// EchoesUID is false for servers whose answer is a constant.
	EchoesUID bool `json:"echoes_uid"`
	Allowed   bool `json:"allowed"`
	Patch     bool `json:"patch"`
	// Text must be part of the answer.
	Text string `json:"text"`
}

func (plan *Plan) warmUp() time.Duration { return seconds(plan.WarmUpSeconds) }

func (plan *Plan) window() time.Duration { return seconds(plan.Seconds) }

// interval is between two Pods, or 0 where there is no rate.
func (plan *Plan) interval() time.Duration {
	if plan.Rate == 0 {
		return 0
	}
	return seconds(1 / plan.Rate)
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

func (credentials *Credentials) tlsConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(credentials.Certificate, credentials.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	bundle, err := os.ReadFile(credentials.CA)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New("ca: no certificate in " + credentials.CA)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      roots,
		ServerName:   "localhost",
		NextProtos:   []string{"http/1.1"},
		MinVersion:   tls.VersionTLS13,
	}, nil
}
