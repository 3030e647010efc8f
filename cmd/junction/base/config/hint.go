package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/policy"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// This file guesses the intention behind unknown keys.

// foreign maps keys of other programs' files to our keys. If text is set, it replaces the
// suggestion of the key.
type foreign map[string]struct{ key, text string }

func foreignKeys(t reflect.Type) foreign {
	switch t {
	case reflect.TypeFor[Config]():
		const clients = "did you mean upstreams? A client's file is imported by: junction import --from FILE --write"
		return foreign{
			"mcpServers": {"upstreams", clients},
			"servers":    {key: "upstreams"}, "upstream": {key: "upstreams"},
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
			"who": {key: "match"}, "subjects": {key: "match"}, "endpoint": {key: "endpoints"},
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
		const hint = "it stands below annotations: { readOnlyHint: false }"
		return foreign{
			"servers": {key: "upstreams"}, "server": {key: "upstreams"}, "arguments": {key: "where"},
			"args": {key: "where"}, "when": {key: "where"},
			"uris": {key: "resources"}, "names": {key: "tools"}, "hints": {key: "annotations"},
			"readOnlyHint": {"annotations", hint}, "destructiveHint": {"annotations", hint},
			"remember": {"rules", `it stands beside ask: { ask: { tools: "shell__*" }, remember: tool }`},
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
	case t.ConvertibleTo(reflect.TypeFor[policy.Redactions]()):
		const list = "a pattern is in a list: redact: [{ name: …, re: … }]"
		return foreign{"name": {"patterns", list}, "re": {"patterns", list}, "pattern": {key: "patterns"},
			"secrets": {"patterns", "the word secrets is in a list: redact: [secrets]"}}
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
func (d *decoder) unknown(path string, p yamlread.Pair, t reflect.Type) {
	at := yamlread.Join(path, p.Key)
	known := slices.Sorted(maps.Keys(yamlread.Keys(t)))
	if f, ok := foreignKeys(t)[p.Key]; ok {
		d.meant(yamlread.Join(path, f.key))
		if f.text == "" {
			f.text = "did you mean " + f.key + "?"
		}
		d.At(p.Line, at, "unknown key; %s", f.text)
		return
	}
	if near := prose.Nearest(p.Key, known); near != "" {
		d.meant(yamlread.Join(path, near))
		d.At(p.Line, at, "unknown key; did you mean %s?", near)
		return
	}
	if t == reflect.TypeFor[Config]() && looksLikeUpstream(p.Value) {
		d.mark("upstreams")
		d.At(p.Line, at, "unknown key; if it is an upstream, indent it below upstreams:")
		return
	}
	d.At(p.Line, at, "unknown key; the keys here are %s", strings.Join(known, ", "))
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
