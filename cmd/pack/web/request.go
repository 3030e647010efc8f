package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/template"
)

// Build makes the request of an http tool with checked arguments. The error is for the model.
func Build(h *manifest.HTTP, values map[string]any) (*Request, error) {
	r := &Request{Method: h.Method, Header: http.Header{}}
	if name := h.URL.Whole(); len(h.Hosts) > 0 {
		if r.URL = template.Value(values[name]); manifest.AddressProblem(r.URL, h.AllowHTTP) != "" {
			return nil, fmt.Errorf("%s %s", name, manifest.AddressProblem(r.URL, h.AllowHTTP))
		}
		return r, r.rest(h, values)
	}
	for _, name := range h.URL.Names() {
		if err := PathValue(name, template.Value(values[name])); err != nil {
			return nil, err
		}
	}
	r.URL = h.URL.Text(values, url.PathEscape)
	return r, r.rest(h, values)
}

// rest adds the query, the headers and the body.
func (r *Request) rest(h *manifest.HTTP, values map[string]any) error {
	query := url.Values{}
	fill(h.Query, values, query.Add)
	r.URL = WithQuery(r.URL, query.Encode())
	fill(h.Headers, values, r.Header.Add)
	if err := CheckHeader(r.Header); err != nil {
		return err
	}
	kind := ""
	switch {
	case h.JSON != nil:
		kind = "application/json"
		r.Body, _ = json.Marshal(h.JSON.Value(values)) // it is made of JSON values
	case h.Form != nil:
		form := url.Values{}
		fill(h.Form, values, form.Add)
		kind, r.Body = "application/x-www-form-urlencoded", []byte(form.Encode())
	case h.Text.Source != "":
		kind, r.Body = "text/plain; charset=utf-8", []byte(h.Text.Text(values, nil))
	}
	if kind != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", kind)
	}
	return nil
}

// fill adds the texts whose placeholders have values, each item of a list on its own.
func fill(texts manifest.Variables, values map[string]any, add func(name, value string)) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if t := texts[name]; t.Missing(values) == "" {
			for _, value := range t.Each(values) {
				add(name, value)
			}
		}
	}
}

// WithQuery appends an encoded query to a URL, which may have one.
func WithQuery(u, query string) string {
	switch {
	case query == "":
		return u
	case strings.Contains(u, "?"):
		return u + "&" + query
	}
	return u + "?" + query
}

// PathValue refuses values that would change which path is meant.
func PathValue(name, value string) error {
	if value == "" || value == "." || value == ".." {
		return fmt.Errorf("%s is %q, which would mean another path; use a value that is neither empty nor dots", name,
			value)
	}
	return nil
}

// CheckHeader refuses values that could end a header.
func CheckHeader(h http.Header) error {
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return errors.New("the value for the header " + name + " has a line break; remove it")
			}
		}
	}
	return nil
}
