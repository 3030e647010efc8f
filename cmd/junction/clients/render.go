package clients

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A Renderer writes entries as the YAML of Junction's configuration.
type Renderer struct {
	// Keep stores a secret and returns the path for a reference to it.
	Keep func(upstream, label, secret string) (string, error)
}

// YAML returns the entry as a key of the section upstreams, without indentation, or as an element
// of { … } if flow is true. comment stands above it.
func (r *Renderer) YAML(name, comment string, e *Entry, flow bool) (string, error) {
	value, err := r.node(name, e)
	if err != nil {
		return "", err
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	put(root, name, value)
	if flow {
		root.Style = yaml.FlowStyle
	} else {
		root.Content[0].HeadComment = comment
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return "", err
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if flow {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	}
	return text, nil
}

func (r *Renderer) node(name string, e *Entry) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	var failed error
	render := func(v Value) *yaml.Node {
		text, err := v.Render(func(label, secret string) (string, error) { return r.Keep(name, label, secret) })
		if err != nil && failed == nil {
			failed = err
		}
		return scalarNode(text)
	}
	mapping := func(key string, m map[string]Value) {
		if len(m) == 0 {
			return
		}
		inner := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			put(inner, k, render(m[k]))
		}
		put(n, key, inner)
	}
	switch {
	case e.Pack != "":
		put(n, "pack", scalarNode(e.Pack))
	case len(e.Command) > 0:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, v := range e.Command {
			list.Content = append(list.Content, render(v))
		}
		put(n, "command", list)
	default:
		put(n, "url", render(e.URL))
	}
	mapping("env", e.Env)
	mapping("headers", e.Headers)
	if len(e.InheritEnv) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, v := range e.InheritEnv {
			list.Content = append(list.Content, scalarNode(v))
		}
		put(n, "inherit_env", list)
	}
	if len(e.Dir) > 0 {
		put(n, "dir", render(e.Dir))
	}
	if e.SSE {
		put(n, "transport", scalarNode("sse"))
	}
	if e.OAuth {
		auth := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		put(auth, "mode", scalarNode("oauth"))
		put(n, "auth", auth)
	}
	if e.Off {
		put(n, "enabled", switchNode(false))
	}
	durations(n, e)
	tools(n, e)
	return n, failed
}

// durations writes the time limits. A call that may be silent for so long may also take so long.
func durations(n *yaml.Node, e *Entry) {
	if e.Timeout > 0 {
		put(n, "timeout", durationNode(e.Timeout))
	}
	if e.Timeout > 10*time.Minute {
		put(n, "max_timeout", durationNode(e.Timeout))
	}
	if e.ConnectTimeout > 0 {
		put(n, "connect_timeout", durationNode(e.ConnectTimeout))
	}
}

// tools writes which tools are offered.
func tools(n *yaml.Node, e *Entry) {
	rules := &yaml.Node{Kind: yaml.MappingNode}
	add := func(names []string, enabled bool) {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			rule := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
			put(rule, "enabled", switchNode(enabled))
			put(rules, name, rule)
		}
	}
	add(e.Only, true)
	add(e.Without, false)
	if e.Only != nil {
		put(n, "expose", scalarNode("listed"))
	}
	if len(rules.Content) > 0 {
		put(n, "tools", rules)
	}
}

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, scalarNode(key), value)
}

func scalarNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsAny(text, "${}\n\r\t") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func switchNode(on bool) *yaml.Node {
	text := "false"
	if on {
		text = "true"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: text}
}

// durationNode writes 2m instead of 2m0s.
func durationNode(d time.Duration) *yaml.Node {
	text := d.String()
	if d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	return scalarNode(text)
}
