package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/template"
	"junction/cmd/pack/web"
)

// param is a parameter: how its value becomes a part of the request.
type param struct {
	key      string // of the argument
	name, in string
	style    string
	explode  bool
	required bool
	isJSON   bool // the value is JSON text
}

func newParam(p *openapi3.Parameter, taken map[string]any) (param, error) {
	made := param{key: argument(p.Name, p.In, taken), name: p.Name, in: p.In, required: p.Required || p.In == "path",
		isJSON: p.Schema == nil && len(p.Content) > 0}
	made.style = cmp.Or(p.Style, map[string]string{"query": "form", "cookie": "form"}[p.In], "simple")
	made.explode = made.style == "form" || made.style == "deepObject"
	if p.Explode != nil {
		made.explode = *p.Explode
	}
	known := map[string][]string{"path": {"simple"}, "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
		"header": {"simple"}, "cookie": {"form"}}
	if !slices.Contains(known[p.In], made.style) {
		return made, fmt.Errorf("its parameter %s has the style %s in %s, which is not supported", p.Name, made.style,
			p.In)
	}
	return made, nil
}

// argument returns the name of the argument for a parameter. Models accept only some characters.
func argument(name, in string, taken map[string]any) string {
	key := unsafe.ReplaceAllString(name, "_")
	key = key[:min(len(key), maxName-16)]
	if taken[key] != nil || key == "" {
		key = in + "_" + key
	}
	for base, i := key, 2; taken[key] != nil; i++ {
		key = fmt.Sprintf("%s_%d", base, i)
	}
	return key
}

// param returns the schema of an argument.
func (s *schemas) param(p *openapi3.Parameter) any {
	ref := p.Schema
	if ref == nil {
		for _, kind := range slices.Sorted(maps.Keys(p.Content)) {
			ref = p.Content[kind].Schema
			break
		}
	}
	schema, ok := s.convert(ref).(map[string]any)
	if !ok {
		schema = map[string]any{}
	}
	if p.Description != "" && schema["description"] == nil {
		schema["description"] = p.Description
	}
	return schema
}

// Request makes the request of a call with checked arguments. The error is for the model.
func (o *Operation) Request(arguments map[string]any) (*web.Request, error) {
	r := &web.Request{Method: o.Method, Header: o.auth.header.Clone()}
	path, query, cookies := o.Path, []string{}, slices.Clone(o.auth.cookies)
	for _, p := range o.params {
		v, ok := arguments[p.key]
		if !ok || v == nil {
			continue
		}
		switch p.in {
		case "path":
			encode := url.PathEscape
			if strings.Contains(o.base+o.Path, "?") { // the value could add parameters of the query
				encode = escape
			}
			text := p.simple(v, encode)
			if err := web.PathValue(p.key, text); err != nil {
				return nil, err
			}
			path = strings.ReplaceAll(path, "{"+p.name+"}", text)
		case "query":
			query = append(query, p.query(v)...)
		case "header":
			r.Header.Set(p.name, p.simple(v, func(s string) string { return s }))
		case "cookie":
			cookies = append(cookies, strings.ReplaceAll(strings.Join(p.query(v), "&"), "&", "; "))
		}
	}
	if strings.Contains(path, "{") {
		return nil, fmt.Errorf("the path %s needs a value that is no parameter of the operation", o.Path)
	}
	r.URL = o.base + path
	if fixed := o.auth.query.Encode(); fixed != "" {
		query = append(query, fixed)
	}
	r.URL = web.WithQuery(r.URL, strings.Join(query, "&"))
	if len(cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(cookies, "; "))
	}
	if o.body != nil {
		if v, ok := arguments[o.body.key]; ok {
			kind, text, err := o.body.encode(v)
			if err != nil {
				return nil, err
			}
			r.Body = text
			r.Header.Set("Content-Type", kind)
		}
	}
	if r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "application/json, */*;q=0.5")
	}
	return r, web.CheckHeader(r.Header)
}

// simple returns a value in the style simple (RFC 6570, 3.2.2).
func (p param) simple(v any, encode func(string) string) string {
	if p.isJSON {
		return encode(template.Value(v))
	}
	switch v := v.(type) {
	case []any:
		return joined(v, encode, ",")
	case map[string]any:
		separator := map[bool]string{true: "=", false: ","}[p.explode]
		var items []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			items = append(items, encode(name)+separator+encode(template.Value(v[name])))
		}
		return strings.Join(items, ",")
	}
	return encode(template.Value(v))
}

// joined returns the encoded items of a list.
func joined(list []any, encode func(string) string, separator string) string {
	items := make([]string, len(list))
	for i, item := range list {
		items[i] = encode(template.Value(item))
	}
	return strings.Join(items, separator)
}

func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// query returns the parts of the query for a value.
func (p param) query(v any) []string {
	if p.isJSON {
		text, _ := json.Marshal(v) // it came from JSON
		return []string{escape(p.name) + "=" + escape(string(text))}
	}
	if p.style == "deepObject" {
		return deep(p.name, v)
	}
	switch v := v.(type) {
	case []any:
		if p.explode {
			var parts []string
			for _, item := range v {
				parts = append(parts, escape(p.name)+"="+escape(template.Value(item)))
			}
			return parts
		}
		separator := map[string]string{"spaceDelimited": "%20", "pipeDelimited": "%7C"}[p.style]
		return []string{escape(p.name) + "=" + joined(v, escape, cmp.Or(separator, ","))}
	case map[string]any:
		return p.object(v)
	}
	return []string{escape(p.name) + "=" + escape(template.Value(v))}
}

func (p param) object(v map[string]any) []string {
	var parts, items []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		value := escape(template.Value(v[name]))
		parts = append(parts, escape(name)+"="+value)
		items = append(items, escape(name)+","+value)
	}
	if p.explode {
		return parts
	}
	return []string{escape(p.name) + "=" + strings.Join(items, ",")}
}

// deep returns name[key]=value for each value of an object or list, however nested.
func deep(name string, v any) (parts []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, deep(name+"["+key+"]", v[key])...)
		}
		return parts
	case []any:
		for i, item := range v {
			parts = append(parts, deep(fmt.Sprintf("%s[%d]", name, i), item)...)
		}
		return parts
	}
	return []string{escape(name) + "=" + escape(template.Value(v))}
}
