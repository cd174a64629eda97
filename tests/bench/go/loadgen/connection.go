package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
)

var (
	contentLength    = []byte("content-length:")
	transferEncoding = []byte("transfer-encoding:")
)

// chunked is the length of a body that is sent in chunks.
const chunked = -1

// Connection speaks HTTP/1.1, one exchange at a time.
type Connection struct {
	tls    *tls.Conn
	reader *bufio.Reader
	body   []byte
	chunks bytes.Buffer
}

func dial(address string, config *tls.Config) (*Connection, error) {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return nil, err
	}
	return &Connection{tls: conn, reader: bufio.NewReader(conn)}, nil
}

func (connection *Connection) close() error { return connection.tls.Close() }

// exchange sends a request and returns the body of its answer, which is valid until the next one.
func (connection *Connection) exchange(request, expected []byte) ([]byte, error) {
	if _, err := connection.tls.Write(request); err != nil {
		return nil, err
	}
	status, err := connection.line()
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(status, expected) {
		return nil, fmt.Errorf("answered %q", status)
	}
	length, err := connection.headers()
	if err != nil {
		return nil, err
	}
	if length == chunked {
		return connection.readChunks()
	}
	if cap(connection.body) < length {
		connection.body = make([]byte, length)
	}
	connection.body = connection.body[:length]
	_, err = io.ReadFull(connection.reader, connection.body)
	return connection.body, err
}

// readChunks reads a body in chunks, and the empty line after them.
func (connection *Connection) readChunks() ([]byte, error) {
	connection.chunks.Reset()
	if _, err := connection.chunks.ReadFrom(httputil.NewChunkedReader(connection.reader)); err != nil {
		return nil, err
	}
	_, err := connection.line()
	return connection.chunks.Bytes(), err
}

// headers reads them all and returns the length of the body.
func (connection *Connection) headers() (int, error) {
	length, found := 0, false
	for {
		line, err := connection.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		if len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength) {
			length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):])))
			if err != nil {
				return 0, err
			}
			found = true
		}
		if len(line) > len(transferEncoding) && bytes.EqualFold(line[:len(transferEncoding)], transferEncoding) {
			length, found = chunked, true
		}
	}
	if !found {
		return 0, errors.New("answered without a Content-Length")
	}
	return length, nil
}

func (connection *Connection) line() ([]byte, error) {
	line, err := connection.reader.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}
