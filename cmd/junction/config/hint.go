package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/policy"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// This file guesses the intention behind unknown keys and text that is not YAML.

// foreign maps keys of other programs' files to our keys. If text is set, it replaces the
// suggestion of the key.
type foreign map[string]struct{ key, text string }

func foreignKeys(t reflect.Type) foreign {
	switch t {
	case reflect.TypeFor[Config]():
		return foreign{
			"mcpServers": {key: "upstreams"}, "servers": {key: "upstreams"}, "upstream": {key: "upstreams"},
			"address": {key: "listen"}, "port": {key: "listen"}, "host": {key: "listen"}, "bind": {key: "listen"},
			"api_keys": {"auth", "it stands below auth:"}, "trusted_proxies": {"auth", "it stands below auth:"},
			"jwt": {"auth", "it stands below auth:"},
		}
	case reflect.TypeFor[Auth]():
		return foreign{"keys": {key: "api_keys"}, "issuers": {key: "jwt"},
			"mode": {"api_keys", "remove it: what is there is on"}}
	case reflect.TypeFor[auth.Issuer](), reflect.TypeFor[auth.Introspection]():
		return foreign{
			"audience": {key: "audiences"}, "jwks_uri": {key: "jwks_url"}, "jwks": {key: "jwks_url"},
			"scopes": {key: "required_scopes"}, "skew": {key: "clock_skew"},
			"groups":  {"claims", "it stands below claims: { groups: [realm_access, roles] }"},
			"subject": {"claims", "it stands below claims: { subject: [sub] }"},
			"url":     {key: "endpoint"}, "secret": {key: "client_secret"},
		}
	case reflect.TypeFor[entryKeys]():
		return foreign{
			"args": {"command", "the arguments stand after the program: command: [npx, -y, some-package]"},
			"type": {"transport", "remove it: command or url says what it is, and transport which kind of url"},
			"cwd":  {key: "dir"}, "environment": {key: "env"}, "serverUrl": {key: "url"}, "endpoint": {key: "url"},
			"disabled": {"enabled", "write enabled: false"},
			"tool":     {key: "tools"}, "header": {key: "headers"},
		}
	case reflect.TypeFor[policy.Entry]():
		const rule = `a rule stands in the list of them: rules: [{ allow: { tools: "files__*" } }]`
		return foreign{
			"allow": {"rules", rule}, "deny": {"rules", rule}, "ask": {"rules", rule}, "permissions": {key: "rules"},
			"who": {key: "match"}, "subjects": {key: "match"},
		}
	case reflect.TypeFor[policy.Rule]():
		const selector = `it stands below allow, ask or deny: allow: { tools: "files__*" }`
		return foreign{
			"upstreams": {"allow", selector}, "tools": {"allow", selector}, "prompts": {"allow", selector},
			"resources": {"allow", selector}, "where": {"allow", selector},
			"permit": {key: "allow"}, "approve": {key: "ask"}, "confirm": {key: "ask"}, "forbid": {key: "deny"},
			"block": {key: "deny"},
		}
	case reflect.TypeFor[policy.Selector]():
		return foreign{
			"servers": {key: "upstreams"}, "server": {key: "upstreams"}, "arguments": {key: "where"},
			"args": {key: "where"}, "when": {key: "where"},
			"uris": {key: "resources"}, "names": {key: "tools"},
		}
	case reflect.TypeFor[policy.Match]():
		const word = "a client's word about itself is no reason to let it do anything; name a key, a user or an " +
			"oauth_client"
		return foreign{
			"api_key": {key: "key"}, "subject": {key: "user"}, "sub": {key: "user"}, "role": {key: "group"},
			"roles": {key: "group"}, "domain": {key: "email_domain"},
			"ip": {key: "cidr"}, "address": {key: "cidr"}, "network": {key: "cidr"}, "endpoint": {key: "surface"},
			"client":      {key: "oauth_client"},
			"client_name": {"oauth_client", word}, "clientInfo": {"oauth_client", word},
		}
	}
	switch { // types that Shape returns for a mapping
	case t.ConvertibleTo(reflect.TypeFor[policy.Redact]()):
		return foreign{"pattern": {key: "re"}, "regex": {key: "re"}, "regexp": {key: "re"},
			"secrets": {"name", "the word secrets stands alone: redact: [secrets]"}}
	case t.ConvertibleTo(reflect.TypeFor[policy.Alternative]()):
		return foreign{"glob": {"re", `a glob stands alone: { command: "git *" }`}, "pattern": {key: "re"},
			"not": {"re", "there is no not; write a deny or the other way round"}}
	}
	return nil
}

// unknown reports a key that the struct type t does not have.
func (d *decoder) unknown(path string, p pair, t reflect.Type) {
	at := yamlread.Join(path, p.key)
	known := slices.Sorted(maps.Keys(yamlread.Keys(t)))
	if f, ok := foreignKeys(t)[p.key]; ok {
		d.meant(yamlread.Join(path, f.key))
		if f.text == "" {
			f.text = "did you mean " + f.key + "?"
		}
		d.at(p.line, at, "unknown key; %s", f.text)
		return
	}
	if near := prose.Nearest(p.key, known); near != "" {
		d.meant(yamlread.Join(path, near))
		d.at(p.line, at, "unknown key; did you mean %s?", near)
		return
	}
	if t == reflect.TypeFor[Config]() && looksLikeUpstream(p.value) {
		d.mark("upstreams")
		d.at(p.line, at, "unknown key; if it is an upstream, indent it below upstreams:")
		return
	}
	d.at(p.line, at, "unknown key; the keys here are %s", strings.Join(known, ", "))
}

// meant records that an unknown key was probably intended as the key at path, so that the latter is
// not reported as missing. If the file has that key as well, its value counts.
func (d *decoder) meant(path string) {
	if !d.has(path) {
		d.mark(path)
	}
}

func looksLikeUpstream(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	return slices.ContainsFunc(n.Content, func(k *yaml.Node) bool {
		return k.Value == "command" || k.Value == "url" || k.Value == "pack"
	})
}

// syntax reports text that is not YAML. The line that the parser reports is that of the enclosing
// structure, and may be far above, off by one, or absent. syntax therefore searches for the last
// line before which the text still parses.
func (d *decoder) syntax(text []byte, err error) {
	said := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if n, scanErr := fmt.Sscanf(said, "line %d:", &line); n == 1 && scanErr == nil {
		_, said, _ = strings.Cut(said, ": ")
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	begin := text
	budget := 2 << 20 // bytes to parse; enough for any file of realistic size
	for n := len(lines); n > 0 && budget > 0; n-- {
		begin = begin[:len(begin)-len(lines[n-1])]
		if budget -= len(begin); parses(begin) {
			line = n
			break
		}
	}
	line = max(1, min(line, len(lines)))
	d.at(line, "", "cannot be read as YAML (%s); %s", said,
		yamlRemedy(string(lines[line-1]), lineAbove(lines[:line-1])))
}

// parses reports whether text is YAML; empty text is.
func parses(text []byte) bool {
	r := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := r.Decode(&doc); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// lineAbove returns the last line that is neither blank nor a comment, with surrounding space
// removed.
func lineAbove(lines [][]byte) string {
	for _, line := range slices.Backward(lines) {
		if l := bytes.TrimSpace(line); len(l) > 0 && l[0] != '#' {
			return string(l)
		}
	}
	return ""
}

// yamlRemedy guesses a remedy from the line and the line before it.
func yamlRemedy(line, before string) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	content := strings.TrimSpace(line)
	key, value, _ := strings.Cut(content, ": ")
	value = strings.TrimSpace(value)
	switch {
	case strings.ContainsFunc(content, unicode.IsControl):
		return "it holds an invisible character; type the line anew"
	case strings.Contains(indent, "\t"):
		return "indent with spaces, not with a tab"
	case strings.Contains(content, "${") && strings.ContainsAny(strings.ReplaceAll(content, "${", ""), "{["):
		return `put quotes around a value with ${…}, such as "Bearer ${TOKEN}"`
	case strings.ContainsAny(first(key), "*&%@`") || strings.ContainsAny(first(value), "*&%@`") ||
		followsBracket(content):
		return "put quotes around what begins with *, &, %, @ or `"
	case strings.Contains(value, ": ") && !strings.ContainsAny(value, `"'{`):
		return "put quotes around a value that contains a colon"
	case strings.Count(content, `"`)%2 == 1 || strings.Count(content, "'")%2 == 1:
		return "a quote is not closed, or stands inside others"
	case strings.Count(content, "[") != strings.Count(content, "]") ||
		strings.Count(content, "{") != strings.Count(content, "}"):
		return "a bracket is not closed, or not opened"
	case content != "" && !strings.Contains(content, ":") && content[0] != '-':
		return "write key: value, with a space after the colon"
	case before != "" && before[0] != '-' && !strings.Contains(before, ": ") &&
		!strings.ContainsAny(before[len(before)-1:], ":[{,"):
		return "the line above needs a colon and a space: key: value"
	}
	return "check its indentation against the lines above"
}

// first returns the first byte of s, or "" if s is empty.
func first(s string) string { return s[:min(1, len(s))] }

// followsBracket reports whether an element of a list in brackets begins with a character that YAML
// reserves.
func followsBracket(s string) bool {
	_, s, _ = strings.Cut(s, "[")
	for e := range strings.SplitSeq(s, ",") {
		if strings.ContainsAny(first(strings.TrimSpace(e)), "*&%@`") {
			return true
		}
	}
	return false
}
