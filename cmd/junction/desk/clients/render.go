package clients

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// entryYAML is an entry as Junction's configuration has it.
type entryYAML struct {
	Pack           text              `yaml:"pack,omitempty"`
	Command        []text            `yaml:"command,omitempty,flow"`
	URL            text              `yaml:"url,omitempty"`
	Env            *yaml.Node        `yaml:"env,omitempty"`
	Headers        *yaml.Node        `yaml:"headers,omitempty"`
	InheritEnv     []text            `yaml:"inherit_env,omitempty,flow"`
	Dir            text              `yaml:"dir,omitempty"`
	Isolation      string            `yaml:"isolation,omitempty"`
	Transport      string            `yaml:"transport,omitempty"`
	Auth           map[string]string `yaml:"auth,omitempty,flow"`
	Enabled        *bool             `yaml:"enabled,omitempty"`
	Timeout        string            `yaml:"timeout,omitempty"`
	MaxTimeout     string            `yaml:"max_timeout,omitempty"`
	ConnectTimeout string            `yaml:"connect_timeout,omitempty"`
	Expose         string            `yaml:"expose,omitempty"`
	Tools          *yaml.Node        `yaml:"tools,omitempty"`
}

// text is a text that is quoted if it has a reference or a control character.
type text string

// MarshalYAML implements yaml.Marshaler.
func (t text) MarshalYAML() (any, error) { return t.node(), nil }

func (t text) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(t)}
	if strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || strings.ContainsRune("${}", r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// YAML returns the entry as a key of the section upstreams: in lines without indentation, below a
// comment unless that is "", and as an element of { … }. keep stores a secret and returns the path
// for a reference to it.
func (e *Entry) YAML(name, comment string, keep func(upstream, label, secret string) (string, error)) (
	block, flow string, err error) {
	value, err := e.yaml(func(label, secret string) (string, error) { return keep(name, label, secret) })
	var root yaml.Node
	if err = cmp.Or(err, root.Encode(map[string]entryYAML{name: value})); err != nil {
		return "", "", err
	}
	root.Content[0].HeadComment = comment
	block, err = encode(&root)
	root.Content[0].HeadComment, root.Style = "", yaml.FlowStyle
	flow, flowErr := encode(&root)
	return block, strings.TrimSuffix(strings.TrimPrefix(flow, "{"), "}"), cmp.Or(err, flowErr)
}

func encode(n *yaml.Node) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(n)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func (e *Entry) yaml(keep func(label, secret string) (string, error)) (y entryYAML, err error) {
	render := func(v Value) text {
		s, failed := v.Render(keep)
		err = cmp.Or(err, failed)
		return text(s)
	}
	mapping := func(m map[string]Value) (n *yaml.Node) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			n = put(n, k, render(m[k]).node())
		}
		return n
	}
	switch {
	case e.Pack != "":
		y.Pack = text(e.Pack)
	case e.Runs():
		for _, v := range e.Command {
			y.Command = append(y.Command, render(v))
		}
	default:
		y.URL = render(e.URL)
	}
	y.Env, y.Headers = mapping(e.Env), mapping(e.Headers)
	for _, variable := range e.InheritEnv {
		y.InheritEnv = append(y.InheritEnv, text(variable))
	}
	y.Dir = render(e.Dir)
	if e.Windows {
		y.Isolation = isolationFolder
	}
	y.Transport = e.Transport
	if e.Auth != "" {
		y.Auth = map[string]string{"mode": e.Auth}
	}
	if e.Off {
		y.Enabled = new(false)
	}
	y.Timeout, y.ConnectTimeout = duration(e.Timeout), duration(e.ConnectTimeout)
	if e.Timeout > 10*time.Minute { // a call that may be silent for so long may also take so long
		y.MaxTimeout = y.Timeout
	}
	if e.Only != nil {
		y.Expose = "listed"
	}
	for _, rule := range []struct {
		enabled string
		tools   []string
	}{{"true", e.Only}, {"false", e.Without}} {
		for _, tool := range slices.Compact(slices.Sorted(slices.Values(rule.tools))) {
			value := put(nil, "enabled", &yaml.Node{Kind: yaml.ScalarNode, Value: rule.enabled})
			value.Style = yaml.FlowStyle
			y.Tools = put(y.Tools, tool, value)
		}
	}
	return y, err
}

// put adds a key to a mapping, and makes the mapping if n is nil.
func put(n *yaml.Node, key string, value *yaml.Node) *yaml.Node {
	if n == nil {
		n = &yaml.Node{Kind: yaml.MappingNode}
	}
	n.Content = append(n.Content, text(key).node(), value)
	return n
}

// duration returns 2m instead of 2m0s, and "" for 0.
func duration(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d%time.Minute == 0:
		return strings.TrimSuffix(d.String(), "0s")
	}
	return d.String()
}
