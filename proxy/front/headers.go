package front

import (
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file checks the headers of requests: the types of their content, and headers that repeat what
// the body says.

// repeats compares a header with the value that it repeats. encoded permits an encoded header.
// mismatch makes the error.
func repeats(h http.Header, name, want string, encoded bool) error {
	values := h[name]
	switch {
	case len(values) == 0:
		return mismatch("%s is missing", name)
	case len(values) > 1:
		return mismatch("%s occurs twice", name)
	}
	got := strings.TrimSpace(values[0])
	if encoded {
		decoded, ok := mcp.DecodeHeaderValue(got)
		if !ok {
			return mismatch("%s is not encoded properly", name)
		}
		got = decoded
	}
	if got != want {
		return mismatch("%s is %.100q, the body says %.100q", name, got, want)
	}
	return nil
}

const headerVersion = "Mcp-Protocol-Version"

// joinVersion leaves one version header of several that are the same. Some clients send it twice, or a
// proxy has joined the two by a comma. Different ones stay as they are.
func joinVersion(h http.Header) {
	values := h[headerVersion]
	if len(values) == 0 || len(values) == 1 && strings.IndexByte(values[0], ',') < 0 {
		return
	}
	version := ""
	for _, value := range values {
		for v := range strings.SplitSeq(value, ",") {
			if v = strings.TrimSpace(v); version == "" {
				version = v
			}
			if v != version {
				return
			}
		}
	}
	h[headerVersion] = []string{version}
}

// paramHeaders compares the Mcp-Param headers with the arguments that they repeat (2026-07-28,
// streamable-http#server-validation). It returns the headers without a declared argument. With
// optional, headers may be missing. mismatch makes the error, unless params are invalid.
func paramHeaders(
	h http.Header, params raw.Object, tool *upstream.Tool, optional bool,
) ([]client.HeaderField, error) {
	var extra []client.HeaderField
	const prefix = "Mcp-Param-"
	for name, values := range h {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		declared := false
		for _, p := range tool.Params {
			declared = declared || strings.EqualFold(name, p.Header())
		}
		if !declared {
			for _, v := range values {
				extra = append(extra, client.HeaderField{Name: name, Value: v})
			}
		}
	}
	if len(tool.Params) == 0 {
		return extra, nil
	}
	arguments, err := params.Object("arguments")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	for _, p := range tool.Params {
		want, given := p.Value(arguments)
		values := h[http.CanonicalHeaderKey(p.Header())]
		switch {
		case !given && len(values) == 0, optional && len(values) == 0:
		case !given:
			return nil, mismatch("%s is set, and the argument that it repeats is not", p.Header())
		case len(values) != 1:
			return nil, mismatch("%s is missing, or occurs twice", p.Header())
		default:
			got, ok := mcp.DecodeHeaderValue(strings.TrimSpace(values[0]))
			if !ok || !p.Matches(got, want) {
				return nil, mismatch("%s differs from the argument that it repeats", p.Header())
			}
		}
	}
	return extra, nil
}

// accepts reports whether the client accepts the media type. Without an Accept header, the client
// accepts every type.
func accepts(r *http.Request, media string) bool {
	values := r.Header["Accept"]
	if len(values) == 0 {
		return true
	}
	for _, v := range values {
		if strings.Contains(v, media) || strings.Contains(v, "*/*") ||
			strings.Contains(v, media[:strings.IndexByte(media, '/')]+"/*") {
			return true
		}
	}
	return false
}

// isJSON reports whether the content type is application/json, with any parameters.
func isJSON(values []string) bool {
	if len(values) != 1 {
		return false
	}
	media, _, _ := strings.Cut(values[0], ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
}
