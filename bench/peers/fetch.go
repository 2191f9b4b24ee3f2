package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"packhorse/pack/pktline"
)

// client speaks protocol v2 to one repository over connections of its own. It drops the packs it
// gets, so that their indexing is not in the figures.
type client struct {
	http   *http.Client
	remote remote
}

func newClient(r remote) *client {
	return &client{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, ReadBufferSize: 256 << 10}}, remote: r,
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// reference is a line of ls-refs.
type reference struct{ id, name string }

// received is the result of a fetch.
type received struct {
	firstByte time.Duration // from the request to the first byte of the pack
	bytes     int64         // of the pack
	objects   int64         // that its header announces
}

// discover asks for the capabilities, as every git client does first.
func (c *client) discover(ctx context.Context, service string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.remote.url+"/info/refs?service="+service, nil)
	if err != nil {
		return err
	}
	body, err := c.do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}

// lsRefs returns the branches and tags.
func (c *client) lsRefs(ctx context.Context) ([]reference, error) {
	var refs []reference
	err := c.eachRef(ctx, func(line []byte) error {
		id, rest, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		if !ok {
			return fmt.Errorf("ls-refs: line %q", line)
		}
		name, _, _ := strings.Cut(rest, " ")
		refs = append(refs, reference{id, name})
		return nil
	})
	return refs, err
}

// eachRef asks for the branches and tags, and calls take with each line of the answer, which is
// valid until take returns.
func (c *client) eachRef(ctx context.Context, take func(line []byte) error) error {
	var ask bytes.Buffer
	w := pktline.NewWriter(&ask)
	err := errors.Join(
		w.String("command=ls-refs\n"), w.String("object-format=sha1\n"), w.Delim(),
		w.String("peel\n"), w.String("symrefs\n"), w.String("ref-prefix HEAD\n"),
		w.String("ref-prefix refs/heads/\n"), w.String("ref-prefix refs/tags/\n"), w.Flush())
	if err != nil {
		return err
	}
	body, err := c.post(ctx, "git-upload-pack", ask.Bytes())
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // read to its end
	lines := pktline.NewReader(bufio.NewReaderSize(body, 64<<10))
	for {
		kind, line, err := lines.Read()
		if err != nil {
			return err
		}
		if kind == pktline.Flush {
			return nil
		}
		if err := take(line); err != nil {
			return err
		}
	}
}

// fetch asks for wants and drops the pack. Arguments are further lines of the request, such as
// "deepen 1".
func (c *client) fetch(ctx context.Context, wants, haves, arguments []string) (received, error) {
	var ask bytes.Buffer
	w := pktline.NewWriter(&ask)
	err := errors.Join(w.String("command=fetch\n"), w.String("object-format=sha1\n"), w.Delim(),
		w.String("thin-pack\n"), w.String("ofs-delta\n"), w.String("no-progress\n"))
	for _, line := range arguments {
		err = errors.Join(err, w.String(line+"\n"))
	}
	for _, id := range wants {
		err = errors.Join(err, w.String("want "+id+"\n"))
	}
	for _, id := range haves {
		err = errors.Join(err, w.String("have "+id+"\n"))
	}
	if err := errors.Join(err, w.String("done\n"), w.Flush()); err != nil {
		return received{}, err
	}
	began := time.Now()
	body, err := c.post(ctx, "git-upload-pack", ask.Bytes())
	if err != nil {
		return received{}, err
	}
	defer body.Close() //nolint:errcheck // read to its end
	return readPack(pktline.NewReader(body), began)
}

// packHeaderSize is the size of "PACK", the version and the count of objects.
const packHeaderSize = 12

// readPack reads the answer to a fetch, and measures the pack in it.
func readPack(lines *pktline.Reader, began time.Time) (received, error) {
	var got received
	var header []byte
	inPack := false
	for {
		kind, line, err := lines.Read()
		switch {
		case err != nil:
			return got, err
		case kind == pktline.Flush:
			if len(header) < packHeaderSize || !bytes.HasPrefix(header, []byte("PACK")) {
				return got, errors.New("fetch: the answer holds no pack")
			}
			got.objects = int64(binary.BigEndian.Uint32(header[8:]))
			return got, nil
		case kind != pktline.Data:
		case !inPack:
			inPack = string(line) == "packfile\n"
		case line[0] == 1:
			if got.bytes == 0 {
				got.firstByte = time.Since(began)
			}
			if missing := packHeaderSize - len(header); missing > 0 {
				header = append(header, line[1:min(len(line), 1+missing)]...)
			}
			got.bytes += int64(len(line) - 1)
		case line[0] == 3:
			return got, fmt.Errorf("fetch: %s", line[1:])
		}
	}
}

// post sends a request of protocol v2 and returns the body of its answer.
func (c *client) post(ctx context.Context, service string, body []byte) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.remote.url+"/"+service, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-"+service+"-request")
	return c.do(request)
}

func (c *client) do(request *http.Request) (io.ReadCloser, error) {
	request.Header.Set("Git-Protocol", "version=2")
	request.Header.Set("User-Agent", "git/2.39.5")
	if c.remote.authorization != "" {
		request.Header.Set("Authorization", c.remote.authorization)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", request.Method, request.URL.Path, response.Status, text),
			response.Body.Close())
	}
	return response.Body, nil
}
