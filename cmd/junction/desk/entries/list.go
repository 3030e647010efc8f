package entries

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
)

// listed is an upstream of the file, and an element of the output of --json.
type listed struct {
	Name     string   `json:"name"`
	Enabled  bool     `json:"enabled"`
	Server   string   `json:"server"` // the command without secrets, or the URL without its query
	Line     int      `json:"line"`
	Mistakes []string `json:"mistakes,omitempty"`
}

// listCommand is `junction list`.
func listCommand(stdout io.Writer, file *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the upstreams of the configuration file",
		Long: "List the upstreams of the configuration file, in their order. junction status shows those of a " +
			"running junction.\n" +
			`
The exit code is 1 if the file has mistakes.`,
		Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			f, err := readExisting(*file)
			if err != nil {
				return err
			}
			for _, p := range f.problems {
				if p.Path == "" { // the file is not YAML, or not a mapping
					return errors.New(p.String())
				}
			}
			if asJSON {
				err = printListJSON(stdout, f)
			} else {
				err = printList(stdout, f)
			}
			if err == nil && len(f.problems) > 0 {
				return config.Unusable(f.path, f.problems)
			}
			return err
		},
	}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// list returns the upstreams in the order of the file.
func (f *file) list() []listed {
	its := f.section()
	var out []listed
	add := func(name string, line int, value *yaml.Node) {
		u, there := f.config.Upstreams[name]
		if slices.ContainsFunc(out, func(l listed) bool { return l.Name == name }) {
			return
		}
		l := listed{Name: name, Enabled: there && !u.Off(), Line: line, Server: f.summary(value)}
		for _, p := range f.problems {
			at := section + "." + name
			if p.Path == at || strings.HasPrefix(p.Path, at+".") || strings.HasPrefix(p.Path, at+"[") {
				l.Mistakes = append(l.Mistakes, strings.TrimPrefix(strings.TrimPrefix(p.Path, at), ".")+" "+p.Text)
			}
		}
		out = append(out, l)
	}
	for i := 0; i+1 < len(its.Content); i += 2 {
		if key := its.Content[i]; key.Tag != "!!merge" {
			add(key.Value, key.Line, its.Content[i+1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.config.Upstreams)) { // of a merge
		add(name, its.Line, &yaml.Node{})
	}
	f.tellApart(out, its)
	return out
}

// tellApart adds to servers that are described alike what else their entries have, without secrets.
func (f *file) tellApart(list []listed, its *yaml.Node) {
	alike := map[string][]int{} // the indexes of the servers by their description
	for i, l := range list {
		alike[l.Server] = append(alike[l.Server], i)
	}
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(its.Content); i += 2 {
		values[its.Content[i].Value] = its.Content[i+1]
	}
	for _, group := range alike {
		var of []int
		var entries []*clients.Entry
		for _, i := range group {
			if value := values[list[i].Name]; value != nil {
				if e := f.entry(value); e != nil {
					of, entries = append(of, i), append(entries, e)
				}
			}
		}
		for k, more := range clients.TellApart(entries) {
			list[of[k]].Server = strings.TrimRight(list[of[k]].Server+" "+more, " ")
		}
	}
}

// section returns the value of upstreams in the file.
func (f *file) section() *yaml.Node {
	var doc yaml.Node
	if yaml.Unmarshal(f.text, &doc) == nil && len(doc.Content) == 1 {
		root := doc.Content[0].Content
		for i := 0; i+1 < len(root); i += 2 {
			if root[i].Value == section {
				return root[i+1]
			}
		}
	}
	return &yaml.Node{}
}

// summary describes the entry as it is written in the file, with references instead of values.
func (f *file) summary(value *yaml.Node) string {
	var given clients.Given
	_ = value.Decode(&given) // an entry with mistakes has what could be read
	if given.Pack != "" {
		return "pack " + given.Pack
	}
	e := f.entry(value)
	if e == nil {
		return "-"
	}
	return e.Line()
}

// entry returns the entry as it is written in the file; nil for a pack, or if it cannot be read.
func (f *file) entry(value *yaml.Node) *clients.Entry {
	var given clients.Given
	_ = value.Decode(&given)
	if given.Pack != "" || !given.Addressed() {
		return nil
	}
	e, err := clients.Given{Command: given.Command, URL: given.URL, Env: given.Env, Headers: given.Headers,
		Dir: given.Dir}.Entry(f.home, f.path)
	if err != nil {
		return nil
	}
	return e
}

// longest is the most characters of a server in the table. JSON has all of them.
const longest = 160

func printList(w io.Writer, f *file) error {
	return cli.Table(w, func(row func(...any)) {
		row("NAME", "STATE", "SERVER")
		for _, l := range f.list() {
			state := "disabled"
			switch {
			case len(l.Mistakes) > 0:
				state = prose.Count(len(l.Mistakes), "mistake")
			case l.Enabled:
				state = "enabled"
			}
			row(prose.OneLine(l.Name), state, prose.Cut(prose.Tilde(prose.OneLine(l.Server)), longest))
		}
	})
}

func printListJSON(w io.Writer, f *file) error {
	return cli.PrintValue(w, struct {
		Config    string   `json:"config"`
		Upstreams []listed `json:"upstreams"`
	}{f.path, append([]listed{}, f.list()...)})
}
