package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// Fresh holds the values that are new: of one Pod, and of the review that is made about it.
type Fresh struct {
	random                    *rand.PCG
	ReviewUID, PodUID, Suffix []byte
}

func newFresh(places *Placeholders) *Fresh {
	return &Fresh{
		random:    rand.NewPCG(rand.Uint64(), rand.Uint64()),
		ReviewUID: []byte(places.ReviewUID),
		PodUID:    []byte(places.PodUID),
		Suffix:    []byte(places.Suffix),
	}
}

func (fresh *Fresh) nextPod() {
	fresh.fill(fresh.PodUID)
	fresh.fill(fresh.Suffix)
}

func (fresh *Fresh) nextReview() { fresh.fill(fresh.ReviewUID) }

// fill replaces all but the hyphens of a UUID by random hexadecimal digits.
func (fresh *Fresh) fill(value []byte) {
	const digits = "0123456789abcdef"
	var bits uint64
	for index := range value {
		if index%16 == 0 {
			bits = fresh.random.Uint64()
		}
		if value[index] != '-' {
			value[index] = digits[bits&15]
		}
		bits >>= 4
	}
}

// Template is a request with the places of its fresh values.
type Template struct {
	bytes                         []byte
	reviewUIDs, podUIDs, suffixes []int
}

func newTemplate(plan *Plan, call *CallPlan, body string) *Template {
	authorization := ""
	if plan.Credentials.Token != "" {
		authorization = "Authorization: Bearer " + plan.Credentials.Token + "\r\n"
	}
	traceparent := ""
	if call.Traceparent != "" {
		traceparent = "Traceparent: " + call.Traceparent + "\r\n"
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-apiserver-admission\r\n"+
		"Content-Length: %d\r\nAccept: application/json, */*\r\n%s"+
		"Content-Type: application/json\r\n%sAccept-Encoding: gzip\r\n\r\n",
		call.Path, len(body), authorization, traceparent)
	request := []byte(head + body)
	return &Template{
		bytes:      request,
		reviewUIDs: occurrences(request, plan.Placeholders.ReviewUID),
		podUIDs:    occurrences(request, plan.Placeholders.PodUID),
		suffixes:   occurrences(request, plan.Placeholders.Suffix),
	}
}

// render writes the request with its fresh values over buffer.
func (template *Template) render(buffer []byte, fresh *Fresh) []byte {
	request := append(buffer[:0], template.bytes...)
	for _, at := range template.reviewUIDs {
		copy(request[at:], fresh.ReviewUID)
	}
	for _, at := range template.podUIDs {
		copy(request[at:], fresh.PodUID)
	}
	for _, at := range template.suffixes {
		copy(request[at:], fresh.Suffix)
	}
	return request
}

func occurrences(text []byte, placeholder string) []int {
	var found []int
	for from := 0; placeholder != ""; {
		at := bytes.Index(text[from:], []byte(placeholder))
		if at < 0 {
			break
		}
		found = append(found, from+at)
		from += at + len(placeholder)
	}
	return found
}
