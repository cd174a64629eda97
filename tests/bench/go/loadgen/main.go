// Command loadgen sends AdmissionReviews to a webhook as kube-apiserver does, over TLS 1.3 with a client certificate and
// a bearer token, and measures. It reads a Plan from its standard input and prints a Result.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	var plan Plan
	if err := json.NewDecoder(os.Stdin).Decode(&plan); err != nil {
		fail(fmt.Errorf("plan: %w", err))
	}
	result, err := run(&plan)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
