package main

import (
	"bytes"
	"fmt"
	"strconv"
)

var (
	allowedField = []byte(`"allowed":`)
	patchField   = []byte(`"patch":`)
)

// status returns the first line of an answer up to the status.
func (expect *Expect) status() []byte {
	if expect.Created {
		return []byte("HTTP/1.1 201 ")
	}
	return []byte("HTTP/1.1 200 ")
}

// check returns an error that shows the answer, where it is not as expected.
func (expect *Expect) check(answer, reviewUID []byte) error {
	allowed, patch := value(answer, allowedField), value(answer, patchField)
	switch {
	case expect.Created:
	case expect.EchoesUID && !bytes.Contains(answer, reviewUID):
		return fmt.Errorf("answered without the uid %s: %s", reviewUID, answer)
	case !bytes.HasPrefix(allowed, []byte(strconv.FormatBool(expect.Allowed))):
		return fmt.Errorf("answered other than allowed: %t: %s", expect.Allowed, answer)
	case expect.Patch != (len(patch) > 2 && patch[0] == '"' && patch[1] != '"'):
		return fmt.Errorf("answered other than with a patch: %t: %s", expect.Patch, answer)
	}
	if !bytes.Contains(answer, []byte(expect.Text)) {
		return fmt.Errorf("answered without %q: %s", expect.Text, answer)
	}
	return nil
}

// value returns the text from a field's value on; nothing where there is no such field.
func value(answer, field []byte) []byte {
	_, rest, _ := bytes.Cut(answer, field)
	return bytes.TrimLeft(rest, " ")
}
