package clients

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
)

// A Server is one entry of a client's file.
type Server struct {
	Place
	Name string
	Line int

	Entry *Entry // nil where Junction cannot have the server
	Err   error  // why; nil otherwise

	fields map[string]any
	inputs map[string]any // of VS Code, by id
}

// Read returns the servers of some places, and an error for each file that exists and cannot be
// read.
func (h Home) Read(places []Place) ([]*Server, []error) {
	var list []*Server
	var errs []error
	failed := map[string]bool{}
	for _, p := range places {
		servers, err := h.read(p)
		if errors.Is(err, fs.ErrNotExist) || failed[p.File] {
			continue
		}
		if err != nil {
			failed[p.File] = true
			errs = append(errs, &revision.Error{File: h.Short(p.File), Err: err})
		}
		list = append(list, servers...)
	}
	return list, errs
}

func (h Home) read(p Place) ([]*Server, error) {
	text, err := revision.Read(p.File)
	if err != nil {
		return nil, err
	}
	return h.parse(p, text)
}

// maxServers is the most servers of one file: each is compared with all others.
const maxServers = 500

// parse returns the servers of a text.
func (h Home) parse(p Place, text []byte) ([]*Server, error) {
	p.keys = p.servers(text)
	found, err := p.Client.format.Servers(text, p.keys)
	if err != nil {
		return nil, err
	}
	if len(found) > maxServers {
		return nil, fmt.Errorf("has %d servers, and Junction reads at most %d of one file", len(found), maxServers)
	}
	asked := map[string]any{}
	if p.Client.syntax&inputs != 0 {
		asked = inputsOf(text, p.keys)
	}
	var list []*Server
	settings := h.settings(p)
	off, rules := h.switchedOff(p, text, settings), p.rules(text, settings)
	for _, r := range found {
		s := &Server{Place: p, Name: r.Name, Line: r.Line, fields: r.Fields, inputs: asked}
		s.Entry, s.Err = s.entry(h)
		if s.Err != nil {
			s.Entry = nil
		} else {
			s.Entry.Off = s.Entry.Off || off(s.Name)
			s.apply(rules)
		}
		list = append(list, s)
	}
	return list, nil
}

// servers returns the keys that lead to the servers in a text. opencode has two layouts: the
// servers are in mcp, or in mcp.servers.
func (p Place) servers(text []byte) []string {
	if p.Client.ID != "opencode" {
		return p.keys
	}
	mcp, _ := format.Tree(text)["mcp"].(map[string]any)
	servers, ok := mcp["servers"].(map[string]any)
	if !ok {
		return p.keys
	}
	for _, own := range []string{"type", "command", "url"} { // then servers is the name of a server
		if _, isText := scalar(servers[own]); isText {
			return p.keys
		}
	}
	return []string{"mcp", "servers"}
}

// switchedOff returns which servers the client disables outside of their entries: Gemini CLI has lists
// of the servers that it uses, and of those that it does not. Claude Code has lists for each project.
func (h Home) switchedOff(p Place, text []byte, settings []map[string]any) func(name string) bool {
	switch {
	case p.Client.ID == "gemini":
		root := format.Tree(text)
		mcp, _ := root["mcp"].(map[string]any)
		return func(name string) bool {
			excluded, _ := listed(name, mcp["excluded"], root["excludeMCPServers"])
			allowed, limited := listed(name, mcp["allowed"], root["allowMCPServers"])
			return excluded || limited && !allowed
		}
	case p.Client.ID == claudeCode && p.ofProject():
		var off, rejected []any
		for _, project := range h.claudeProjects(p, text) {
			off, rejected = append(off, project["disabledMcpServers"]), append(rejected, project[rejectedServers])
		}
		for _, s := range settings {
			rejected = append(rejected, s[rejectedServers])
		}
		return func(name string) bool {
			disabled, _ := listed(name, off...)
			if p.Scope == Project && !disabled { // the lists with the names of rules are for the file of a project
				disabled, _ = listed(ruleName(name), namesOf(rejected)...)
			}
			return disabled
		}
	}
	return func(string) bool { return false }
}

// rejectedServers is a key of Claude Code. A server that a user accepts (enabledMcpjsonServers) and
// that is in this list is rejected.
const rejectedServers = "disabledMcpjsonServers"

// listed reports whether a name is in one of some lists, and whether there is a list.
func listed(name string, lists ...any) (is, has bool) {
	for _, l := range lists {
		list, ok := l.([]any)
		has = has || ok
		is = is || slices.ContainsFunc(list, func(v any) bool { s, _ := v.(string); return s == name })
	}
	return is, has
}

// namesOf returns lists with the names of servers as they are in rules.
func namesOf(lists []any) (named []any) {
	for _, l := range lists {
		list, _ := l.([]any)
		var names []any
		for _, v := range list {
			if name, ok := v.(string); ok {
				names = append(names, ruleName(name))
			}
		}
		named = append(named, names)
	}
	return named
}

// claudeProjects returns what the user's files of Claude Code have about the project of a place. text
// is the text of the place.
func (h Home) claudeProjects(p Place, text []byte) (list []map[string]any) {
	texts := [][]byte{text}
	if p.Scope == Project {
		texts = nil
		for _, u := range p.Client.user {
			if file, ok := h.file(u); ok {
				if text, err := revision.Read(file); err == nil {
					texts = append(texts, text)
				}
			}
		}
	}
	for _, text := range texts {
		projects, _ := format.Tree(text)["projects"].(map[string]any)
		if project, ok := projects[p.folder].(map[string]any); ok {
			list = append(list, project)
		}
	}
	return list
}

// settings returns the settings of Claude Code for a place, without those that cannot be read. The
// settings of a project count for its servers only.
func (h Home) settings(p Place) (list []map[string]any) {
	if p.Client.ID != claudeCode || p.named {
		return nil
	}
	folder := filepath.Join(h.Dir, ".claude")
	if dir, _ := h.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		folder = dir
	}
	files := []string{filepath.Join(folder, "settings.json")}
	if p.folder != "" {
		for _, name := range []string{"settings.json", "settings.local.json"} {
			files = append(files, filepath.Join(p.folder, ".claude", name))
		}
	}
	for _, file := range files {
		if text, err := revision.Read(file); err == nil {
			list = append(list, format.Tree(text))
		}
	}
	return list
}

// A rule says what a client does with the tools whose names match a glob.
type rule struct {
	glob   string // of the names that tools have in the client
	action string // as opencode writes it: deny, ask or allow
}

// rules returns the rules of Claude Code that deny tools of servers in a place, and all rules of opencode.
// The last rule that matches counts.
func (p Place) rules(text []byte, settings []map[string]any) (rules []rule) {
	if p.Client.ID == "opencode" {
		return opencodeRules(text)
	}
	for _, s := range settings {
		permissions, _ := s["permissions"].(map[string]any)
		list, _ := permissions["deny"].([]any)
		for _, v := range list {
			if glob, _ := v.(string); strings.HasPrefix(glob, "mcp__") {
				rules = append(rules, rule{glob, "deny"})
			}
		}
	}
	return rules
}

// opencodeRules returns what tools and permission of opencode say. Since version 1.1.1, opencode puts the
// rules of tools before those of permission.
func opencodeRules(text []byte) (rules []rule) {
	root := format.Tree(text)
	for _, key := range []string{"tools", "permission"} {
		if all, ok := root[key].(string); ok {
			rules = append(rules, rule{"*", all})
		}
		values, _ := root[key].(map[string]any)
		members, _ := format.JSON{}.Servers(text, []string{key}) // in their order
		for _, m := range members {
			switch v := values[m.Name].(type) {
			case bool:
				rules = append(rules, rule{m.Name, map[bool]string{true: "allow", false: "deny"}[v]})
			case string:
				rules = append(rules, rule{m.Name, v})
			case map[string]any: // by arguments, which a call of MCP does not have there: it matches "*" alone
				action, _ := v["*"].(string)
				rules = append(rules, rule{m.Name, action})
				if len(v) > 1 || action == "" {
					rules = append(rules, rule{m.Name, patterns})
				}
			}
		}
	}
	return rules
}

// patterns is the action of a rule that Junction cannot have.
const patterns = "patterns"

// apply applies rules about tools. In Claude Code, mcp__SERVER__TOOL is the name of a tool, and mcp__SERVER
// stands for all of a server; in opencode, SERVER_TOOL is the name. In doubt, a tool is hidden: a rule for
// all tools lifts no deny of single ones, and a shorter glob no deny of the server.
func (s *Server) apply(rules []rule) {
	begin := ruleName(s.Name) + "_"
	if s.Client.ID == claudeCode {
		begin = "mcp__" + begin + "_"
	}
	var closed string                // the glob that denies all tools
	var only, without, asks []string // names and globs of tools
	for _, r := range rules {
		if s.Client.ID == claudeCode && r.glob+"__" == begin {
			r.glob = begin + "*"
		}
		rest := remainders(r.glob, begin)
		whole := slices.ContainsFunc(rest, every)
		named := func(tool string) bool { return slices.Contains(rest, tool) }
		switch permits := r.action == "allow" || r.action == "ask"; {
		case len(rest) == 0:
			continue
		case r.action == patterns:
			s.Entry.Notes = append(s.Entry.Notes, "not imported: the patterns in permission of "+short(r.glob))
		case r.action == "deny" && whole:
			closed, only = r.glob, nil
		case r.action == "deny":
			without, only = append(without, rest...), slices.DeleteFunc(only, named)
		case permits && whole:
			asks = nil
			if len(r.glob) >= len(closed) {
				closed = ""
			}
		case permits:
			without, asks = slices.DeleteFunc(without, named), slices.DeleteFunc(asks, named)
			if closed != "" && !strings.ContainsAny(r.glob, "*?") {
				only = append(only, rest...)
			}
		}
		if r.action == "ask" {
			asks = append(asks, rest...)
		}
	}
	hidden := strings.Join(quoted(without), ", ")
	switch {
	case closed != "" && len(only) == 0:
		s.Entry.Off, hidden, asks = true, "all tools", nil
	case closed != "":
		s.Entry.narrow(&Entry{Only: only, Without: without})
		hidden = "all tools but " + strings.Join(quoted(only), ", ")
	default:
		s.Entry.narrow(&Entry{Without: without})
	}
	if hidden != "" {
		s.Entry.Notes = append(s.Entry.Notes, fmt.Sprintf("the settings of %s hide %s", s.Client.Name, hidden))
	}
	if len(asks) > 0 {
		before := strings.Join(quoted(asks), ", ")
		if slices.ContainsFunc(asks, every) {
			before = "its tools"
		}
		s.Entry.Notes = append(s.Entry.Notes, fmt.Sprintf("%s asks before it calls %s; Junction asks only if a policy "+
			"has ask", s.Client.Name, before))
	}
}

// every reports whether a glob matches every text.
func every(glob string) bool { return strings.Trim(glob, "*") == "" }

// longestGlob is the length in bytes of a glob that is read. It bounds the work for a file of others; names
// of tools are shorter.
const longestGlob = 256

// remainders returns the globs of the texts that can follow prefix in a text that matches glob.
func remainders(glob, prefix string) []string {
	if len(glob) > longestGlob {
		return nil
	}
	left := []string{glob}
	for i := range len(prefix) {
		var next []string
		for _, g := range left {
			rest := strings.TrimLeft(g, "*")
			if len(rest) < len(g) {
				next = append(next, "*"+rest)
			}
			if rest != "" && (rest[0] == '?' || rest[0] == prefix[i]) {
				next = append(next, rest[1:])
			}
		}
		left = slices.Compact(slices.Sorted(slices.Values(next)))
	}
	return slices.DeleteFunc(left, func(g string) bool { return g == "" })
}

// notInRule is what both clients replace in the name of a server.
var notInRule = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// ruleName returns the name of a server as it is in rules.
func ruleName(name string) string { return notInRule.ReplaceAllString(name, "_") }

// inputsOf returns the inputs of a file of VS Code by their ids. They are beside the servers, to which
// keys lead.
func inputsOf(text []byte, keys []string) map[string]any {
	at := format.Tree(text)
	for _, key := range keys[:len(keys)-1] {
		at, _ = at[key].(map[string]any)
	}
	list, _ := at["inputs"].([]any)
	m := map[string]any{}
	for _, e := range list {
		if in, ok := e.(map[string]any); ok {
			id, _ := in["id"].(string)
			m[id] = in
		}
	}
	return m
}

func basicAuth(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}
