package clients

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"junction/cmd/junction/desk/clients/format"
)

// gooseReference is what Goose expands in the URL and the headers of an extension.
var gooseReference = regexp.MustCompile(`\$\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}|\$([A-Za-z_][A-Za-z0-9_]*)`)

// gooseFields returns an extension of Goose in the words of other clients, and the names of the
// variables whose values Goose keeps in its keyring.
func gooseFields(extension map[string]any) (m map[string]any, kept []string, err error) {
	m = maps.Clone(extension)
	f := fields{m: m}
	kept = f.list("env_keys")
	for i, name := range kept {
		if f.err == nil && !variableName.MatchString(name) {
			f.err = fmt.Errorf("env_keys[%d] is no name of a variable", i)
		}
	}
	envs := map[string]any{}
	for name, value := range f.pairs("envs") {
		envs[name] = value
	}
	kept = slices.DeleteFunc(kept, func(name string) bool { _, has := envs[name]; return has })
	kind, _ := m["type"].(string)
	_, remote := remoteTypes[kind]
	switch {
	case kind == "stdio":
		m["command"], m["env"] = m["cmd"], envs
		delete(m, "uri")
	case remote:
		m["uri"] = expandGoose(f.text("uri"), envs, kept)
		headers := map[string]any{}
		for name, value := range f.pairs("headers") {
			headers[name] = expandGoose(value, envs, kept)
		}
		m["headers"] = headers
	default:
		return nil, nil, errors.New("it is an extension of the client")
	}
	if tools, _ := m["available_tools"].([]any); len(tools) > 0 { // none means all
		m["tools"] = tools
	}
	m["enabled"] = m["enabled"] == true // Goose skips an extension without it
	m["tool_timeout_sec"] = m["timeout"]
	for _, own := range []string{"cmd", "envs", "env_keys", "available_tools", "timeout", "bundled", "display_name"} {
		delete(m, own)
	}
	return m, kept, f.err
}

// expandGoose replaces references to variables that the extension itself sets, and brings those to
// kept variables to one form.
func expandGoose(text string, envs map[string]any, kept []string) string {
	return gooseReference.ReplaceAllStringFunc(text, func(reference string) string {
		m := gooseReference.FindStringSubmatch(reference)
		name := m[1] + m[2]
		if value, ok := envs[name].(string); ok {
			return value
		} else if slices.Contains(kept, name) {
			return "${" + name + "}"
		}
		return reference
	})
}

// fromKeyring gives the command the variables that Goose keeps in its keyring.
func (e *Entry) fromKeyring(r *reader, kept []string) {
	for _, name := range kept {
		if e.Runs() {
			e.Env[name] = Variable(name)
		}
		r.note(setVariable+"%s to the value that Goose keeps in its keyring", name)
	}
}

func gooseClient() *Client {
	return &Client{
		ID: "goose", Name: "Goose", format: format.YAML{}, keys: []string{"extensions"}, syntax: dollar | unbraced,
		user: []path{
			{file: "$GOOSE_PATH_ROOT/config/config.yaml"},
			{base: config, file: "goose/config.yaml", os: "linux"},
			{base: config, file: "goose/config.yaml", os: "darwin"},
			{base: appConfig, file: "Block/goose/config/config.yaml", os: "windows"},
		},
		entry: gooseEntry, reads: true,
		command: gooseCommand, env: "envs", key: ByFile, seen: "Extensions, or goose info -v",
		habits: habits{fields: gooseFields, keyring: true},
	}
}

// gooseEntry has the key from the environment or the keyring of Goose.
func gooseEntry(t Target) format.Object {
	o := append(gooseExtension(t, "streamable_http"), format.Member{Key: "uri", Value: t.URL})
	if t.Key {
		o = append(o, format.Member{Key: "headers", Value: format.Object{
			{Key: "Authorization", Value: "Bearer ${" + KeyVariable + "}"}}},
			format.Member{Key: "env_keys", Value: []string{KeyVariable}})
	}
	return o
}

// gooseCommand is the entry that starts junction stdio.
func gooseCommand(t Target) format.Object {
	words := stdioWords(t)
	return append(gooseExtension(t, "stdio"), format.Member{Key: "cmd", Value: words[0]},
		format.Member{Key: "args", Value: words[1:]})
}

// gooseExtension returns what all extensions have.
func gooseExtension(t Target, kind string) format.Object {
	return format.Object{{Key: "enabled", Value: true}, {Key: "type", Value: kind},
		{Key: "name", Value: t.Name}, {Key: "description", Value: "All MCP servers of Junction"}}
}
