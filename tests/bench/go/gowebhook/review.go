package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"podgate.io/bench/policy"
)

const maxBodyBytes = 7 << 20

// Review is an AdmissionReview of admission.k8s.io/v1: a request in, a response out.
type Review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *Request  `json:"request,omitempty"`
	Response   *Response `json:"response,omitempty"`
}

// Request has the fields that the webhook reads.
type Request struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Object    Pod    `json:"object"`
}

// Response is the decision.
type Response struct {
	UID       string  `json:"uid"`
	Allowed   bool    `json:"allowed"`
	Status    *Status `json:"status,omitempty"`
	PatchType string  `json:"patchType,omitempty"`
	Patch     []byte  `json:"patch,omitempty"`
}

// Status says why a Pod is denied.
type Status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Webhook reviews Pods.
type Webhook struct {
	quota *Quota
}

// handler decodes the review, charges the Pod where there is a quota, and lets decide do the rest.
func (webhook *Webhook) handler(decide func(*Request) (*Response, error)) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, call *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(writer, call.Body, maxBodyBytes))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		var review Review
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
			http.Error(writer, "not an AdmissionReview", http.StatusBadRequest)
			return
		}
		response, err := webhook.review(call, review.Request, decide)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		answer, err := json.Marshal(Review{APIVersion: review.APIVersion, Kind: review.Kind, Response: response})
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		_, _ = writer.Write(answer)
	})
}

func (webhook *Webhook) review(
	call *http.Request, request *Request, decide func(*Request) (*Response, error),
) (*Response, error) {
	if !strings.HasPrefix(request.Namespace, policy.Namespace) {
		return &Response{UID: request.UID, Allowed: true}, nil
	}
	if webhook.quota != nil {
		charged, err := webhook.quota.charge(call.Context(), request.Namespace)
		if err != nil {
			return nil, err
		}
		if !charged {
			return denied(request, http.StatusTooManyRequests, "quota exceeded"), nil
		}
	}
	return decide(request)
}

func denied(request *Request, code int, message string) *Response {
	return &Response{UID: request.UID, Status: &Status{Code: code, Message: message}}
}

// answerConstant reads a review and decides nothing.
func answerConstant(writer http.ResponseWriter, call *http.Request) {
	if _, err := io.Copy(io.Discard, call.Body); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(writer, `{"response":{"uid":"x","allowed":true}}`)
}
