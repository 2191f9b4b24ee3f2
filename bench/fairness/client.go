package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// client is one connection. It reads answers and drops them, as cheaply as it can: it shares the
// machine with the server.
type client struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// do sends a request and reads its answer, and reports whether the server carried it out. A
// connection that ends is a refusal.
func (c *client) do(ctx context.Context, request []byte) (ok bool, err error) {
	if c.conn == nil {
		dialer := net.Dialer{}
		if c.conn, err = dialer.DialContext(ctx, "tcp", c.address); err != nil {
			return false, err
		}
		c.in = bufio.NewReaderSize(c.conn, 64<<10)
	}
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ok, keep := c.exchange(request)
	if !keep {
		c.close()
	}
	return ok, nil
}

// exchange sends a request and reads its answer. keep reports whether the connection can be used
// again.
func (c *client) exchange(request []byte) (ok, keep bool) {
	if _, err := c.conn.Write(request); err != nil {
		return false, false
	}
	h, err := readHead(c.in)
	if err != nil {
		return false, false
	}
	if h.chunked {
		err = skipChunks(c.in)
	} else {
		_, err = c.in.Discard(h.length)
	}
	return h.status/100 == 2 && err == nil, err == nil && !h.closes
}

// head is what a client needs to know of an answer's first lines.
type head struct {
	status  int
	length  int // of the body, unless it is chunked
	chunked bool
	closes  bool // the connection ends with the answer
}

var (
	errHead  = errors.New("not the head of an HTTP/1.1 answer")
	errChunk = errors.New("not a chunk")
)

// readHead reads an answer's status line and headers. One without a length has no body.
func readHead(in *bufio.Reader) (h head, err error) {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
				return h, fmt.Errorf("%w: %q", errHead, line)
			}
			h.status, err = strconv.Atoi(string(line[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
			if err != nil {
				return h, errors.Join(errHead, err)
			}
			continue
		}
		if len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, errors.Join(errHead, err)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("Connection")):
			h.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
}

// skipChunks reads a body of chunks and its trailers.
func skipChunks(in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(bytes.TrimRight(line, "\r\n")), 16, 31)
		if err != nil {
			return errors.Join(errChunk, err)
		}
		if size == 0 {
			break
		}
		if _, err := in.Discard(int(size) + len("\r\n")); err != nil {
			return err
		}
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return nil
		}
	}
}
