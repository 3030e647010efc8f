package clients

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"junction/upstream/shell"
	"maps"
	"net/url"
	slashed "path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An Entry is a server in the terms of Junction's configuration.
type Entry struct {
	Command    []Value
	Env        map[string]Value
	InheritEnv []string
	Dir        Value
	Windows    bool   // each folder of a client has a process of its own (isolation: folder)
	Named      string // the folder of the project of a command, or where it was typed; "" for a user's entry
	URL        Value
	Pack       string // a path, instead of a command or a URL
	Headers    map[string]Value
	Transport  string // the word of the file; "" if it needs none
	Auth       string // auth.mode; "" sends only headers
	Off        bool
	Foreign    bool     // somebody else may have written the entry
	Published  []string // headers and variables whose value the publisher of a server has set

	Only    []string // tools; nil means all
	Without []string // tools

	Timeout        time.Duration // 0 means the default
	ConnectTimeout time.Duration

	Notes []string // what the entry lacks, and what is to be done

	command *Entry // the same with the command of a bridge; nil without a bridge
}

// Runs reports whether the server is a command, which runs on this machine.
func (e *Entry) Runs() bool { return len(e.Command) > 0 }

// Secrets returns the labels of the secrets in the entry.
func (e *Entry) Secrets() []string {
	var labels []string
	for _, v := range e.values() {
		labels = append(labels, v.secrets()...)
	}
	return labels
}

// Variables returns the environment variables without a default that the entry refers to.
func (e *Entry) Variables() []string {
	var names []string
	for _, v := range e.values() {
		names = append(names, v.Variables()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Anonymous reports whether the server has a URL and nothing that looks like a credential for it.
func (e *Entry) Anonymous() bool {
	return !e.Runs() && len(e.Secrets()) == 0 &&
		!slices.ContainsFunc(slices.Collect(maps.Keys(e.Headers)), secretName)
}

// values returns all values in a fixed order.
func (e *Entry) values() []Value {
	list := append(slices.Clone(e.Command), e.URL, e.Dir)
	for _, m := range []map[string]Value{e.Env, e.Headers} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			list = append(list, m[k])
		}
	}
	return list
}

// The defaults of time limits.
const (
	installTime = 2 * time.Minute  // connect_timeout of commands
	remoteTime  = 20 * time.Second // connect_timeout of other servers
	callTime    = time.Minute      // timeout
)

// installs reports whether a program runs a package, which it may have to download first.
func installs(program Value) bool { return shell.Installs(program.Expand(unset)) }

// Summary returns what the server is, without anything that may be secret: the program and the
// package that it runs, or the URL without its query.
func (e *Entry) Summary() string {
	if !e.Runs() {
		return e.URL.address()
	}
	program := filepath.Base(strings.ReplaceAll(e.Command[0].Expand(unset), `\`, "/"))
	if shell.Interprets(program) {
		return strings.TrimRight(program+" "+e.script(), " ")
	}
	if !shell.Installs(program) {
		return short(program)
	}
	if program == "docker" || program == "podman" {
		if name := image(e.CommandLine()[1:]); name != "" {
			return program + " " + short(name)
		}
		return program
	}
	for _, arg := range e.Command[1:] {
		text := arg.Expand(unset)
		isPlain := len(arg) == 1 && arg[0].kind == plainText
		if isPlain && !strings.HasPrefix(text, "-") && !strings.Contains(text, "=") && text != "run" {
			return program + " " + short(text)
		}
	}
	return program
}

// script returns the name of the script or of the module of Python that the first argument of an interpreter
// names, without its folder. It returns "" if the first argument is another flag, or may be secret.
func (e *Entry) script() string {
	args := e.Command[1:]
	if len(args) > 1 && args[0].Expand(unset) == "-m" {
		args = args[1:]
	}
	if len(args) == 0 || len(args[0]) != 1 || args[0][0].kind != plainText && args[0][0].kind != folder {
		return ""
	}
	text := args[0].Expand(unset)
	if strings.HasPrefix(text, "-") {
		return ""
	}
	return short(filepath.Base(strings.ReplaceAll(text, `\`, "/")))
}

func unset(string) (string, bool) { return "", false }

// address returns a URL without user, query and fragment. It has … for a secret, and ${NAME} for a
// variable.
func (v Value) address() string {
	var b strings.Builder
	for _, p := range v {
		switch p.kind {
		case plainText, folder:
			b.WriteString(p.text)
		case variable:
			b.WriteString("${" + p.text + "}")
		default:
			b.WriteString("…")
		}
	}
	text, _, _ := strings.Cut(b.String(), "?")
	text, _, _ = strings.Cut(text, "#")
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return short(text)
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if hasPath {
		host += "/" + path
	}
	return short(scheme + "://" + host)
}

// ownHeaders are those that Junction sets itself.
var ownHeaders = []string{
	"host", "content-length", "content-type", "accept", "connection", "mcp-session-id", "mcp-protocol-version",
}

// OwnHeader reports whether Junction sets the header itself.
func OwnHeader(name string) bool { return slices.Contains(ownHeaders, strings.ToLower(name)) }

// sse is the word of the file for HTTP+SSE. Streamable HTTP needs no word.
const sse = "sse"

// remoteTypes has the values of type for a server with a URL, with their words of the file.
var remoteTypes = map[string]string{"http": "", "sse": sse, "remote": "", "streamable-http": "", "streamableHttp": "",
	"streamable_http": ""}

// otherScheme returns the scheme of a URL if it is another than those of HTTP.
func otherScheme(address string) string {
	scheme, _, ok := strings.Cut(address, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme == "http" || scheme == "https" || strings.ContainsAny(scheme, "${}") {
		return ""
	}
	return short(scheme)
}

// handled are the fields that entry reads. clientOnly are those that concern the client alone: what
// it asks its user, and how it shows the server.
var (
	handled = []string{
		"command", "args", "env", "environment", "env_vars", "cwd", "disabled", "enabled",
		"url", "httpUrl", "serverUrl", "uri", "type", "transport", "headers", "http_headers",
		"env_http_headers", "bearer_token_env_var", "includeTools", "excludeTools", "enabled_tools",
		"disabled_tools", "disabledTools", "tools", "timeout", "tool_timeout_sec", "startup_timeout_sec",
		"startup_timeout_ms", "envFile",
	}
	clientOnly = []string{
		"alwaysAllow", "autoApprove", "trust", "description", "alwaysLoad", "source", "gallery", "version",
		"name", "icon", "dev", "required", "default_tools_approval_mode",
	}
)

// entry translates the server. The error says why it cannot be one of Junction's.
func (s *Server) entry(h Home) (*Entry, error) {
	f := fields{m: s.fields}
	if f.m == nil {
		return nil, errors.New("its entry is not a mapping")
	}
	r := &reader{place: s.Place, home: h, asked: s.inputs, client: s.Client.syntax}
	habits := s.Client.habits.orNone()
	var kept []string // variables in the keyring of the client
	if f.m, kept, f.err = habits.fields(f.m); f.err != nil {
		return nil, f.err
	}
	if habits.keyring {
		if r.only = kept; f.m["command"] != nil {
			r.only = []string{}
		}
	}
	e := &Entry{Env: map[string]Value{}, Headers: map[string]Value{}, Foreign: s.foreign()}
	if err := e.reach(&f, r, s.Client.ID, kept); err != nil {
		return nil, err
	}
	e.fromKeyring(r, kept)
	e.Off = f.m["disabled"] == true || f.m["enabled"] == false
	e.tools(&f)
	e.times(&f, r, habits.firstList)
	f.unread(r)
	e.Notes = r.notes
	return e, f.err
}

// reach sets how the server is reached: by a URL, also behind a bridge, or by a command. client is "" for a
// command that a person has typed: it is no bridge. kept are variables in the keyring of the client.
func (e *Entry) reach(f *fields, r *reader, client string, kept []string) error {
	command, args := f.command()
	if client != "" {
		command, args = r.separate(command, args)
	}
	address := f.text("url", "httpUrl", "serverUrl", "uri")
	kind := f.text("type", "transport")
	transport, remoteType := remoteTypes[kind]
	remote := address != "" && (command == "" || remoteType)
	switch {
	case command == "" && address == "" && f.m["settings"] != nil:
		return errors.New("it is an extension of the client")
	case command == "" && address == "":
		return errors.New("it has neither a command nor a URL")
	case f.err != nil:
		return f.err
	case remote && otherScheme(address) != "":
		return fmt.Errorf("its URL has the scheme %s, and Junction reaches servers by http and https only",
			otherScheme(address))
	case remote:
		e.remote(f, r, address)
		e.Transport = transport
	case client != "" && len(kept) == 0 && e.bridge(f, r, command, args):
	default:
		e.local(f, r, command, args)
	}
	return nil
}

// times sets the time limits. With firstList, timeout is the time of the first listing.
func (e *Entry) times(f *fields, r *reader, firstList bool) {
	e.Timeout = f.duration("timeout", time.Millisecond)
	if e.Timeout > 0 && e.Timeout < time.Second { // some clients count seconds; no limit is that short
		e.Timeout *= time.Second / time.Millisecond
		r.note("the timeout counts as seconds: %s", duration(e.Timeout))
	}
	e.Timeout = max(e.Timeout, f.duration("tool_timeout_sec", time.Second))
	e.ConnectTimeout = f.duration("startup_timeout_sec", time.Second)
	e.ConnectTimeout = max(e.ConnectTimeout, f.duration("startup_timeout_ms", time.Millisecond))
	if firstList {
		e.ConnectTimeout, e.Timeout = e.Timeout, 0
	}
	if e.ConnectTimeout > 0 && e.ConnectTimeout < installTime && e.Runs() && installs(e.Command[0]) {
		r.note("the start may take %s, not %s, because the package may have to be downloaded first",
			duration(installTime), duration(e.ConnectTimeout))
		e.ConnectTimeout = 0
	}
}

// patient gives the entry the time limits of an equal entry, where those are longer. An entry without a limit
// has the default of Junction.
func (e *Entry) patient(o *Entry) {
	e.Timeout = longer(e.Timeout, o.Timeout, callTime)
	start := remoteTime
	if e.Runs() {
		start = installTime
	}
	e.ConnectTimeout = longer(e.ConnectTimeout, o.ConnectTimeout, start)
}

// longer returns the longer one of two time limits; 0 is the usual one.
func longer(a, b, usual time.Duration) time.Duration {
	if a == b {
		return a
	}
	if longest := max(cmp.Or(a, usual), cmp.Or(b, usual)); longest != usual {
		return longest
	}
	return 0
}

// unread notes the fields that are not imported.
func (f *fields) unread(r *reader) {
	if f.m["envFile"] != nil {
		r.note("not imported: envFile; put the variables of that file into env of the entry")
	}
	var lost []string
	for _, k := range slices.Sorted(maps.Keys(f.m)) {
		if !slices.Contains(handled, k) && !slices.Contains(clientOnly, k) {
			lost = append(lost, short(k))
		}
	}
	if len(lost) > 0 {
		r.note("not imported: %s", strings.Join(lost, ", "))
	}
}

func (e *Entry) remote(f *fields, r *reader, address string) {
	e.URL = r.value(address).conceal("", "url")
	f.err = cmp.Or(f.err, r.pin(&e.URL, "its URL"))
	if u, err := url.Parse(address); err == nil && u.User != nil { // Junction wants it in a header
		password, _ := u.User.Password()
		basic := basicAuth(u.User.Username(), password)
		u.User = nil
		e.URL = r.value(u.String()).conceal("", "url")
		e.Headers["Authorization"] = Value{{text: "Basic "}, {kind: secret, text: basic, label: "Authorization"}}
	}
	for _, key := range []string{"headers", "http_headers"} {
		for name, value := range f.pairs(key) {
			if !slices.Contains(ownHeaders, strings.ToLower(name)) {
				v := r.value(value).conceal(name, name)
				if err := r.pin(&v, name); err != nil {
					r.note("not imported: %v", err)
					continue
				}
				e.Headers[name] = v
			}
		}
	}
	for name, env := range f.pairs("env_http_headers") {
		e.Headers[name] = Value{{kind: variable, text: env}}
	}
	if env := f.text("bearer_token_env_var"); env != "" {
		e.Headers["Authorization"] = Value{{text: "Bearer "}, {kind: variable, text: env}}
	}
}

func (e *Entry) local(f *fields, r *reader, command string, args []string) {
	e.Command = append([]Value{r.value(command)}, concealArguments(args, r.named)...)
	for _, key := range []string{"env", "environment"} {
		for name, value := range f.pairs(key) {
			e.Env[name] = r.named(value).conceal(name, name)
		}
	}
	if c, ok := f.m["command"].(map[string]any); ok {
		inner := fields{m: c}
		for name, value := range inner.pairs("env") {
			e.Env[name] = r.named(value).conceal(name, name)
		}
		f.err = cmp.Or(f.err, inner.err)
	}
	e.InheritEnv = f.list("env_vars")
	for i, name := range e.InheritEnv { // Junction would read others as patterns
		if f.err == nil && (!variableName.MatchString(name) || strings.EqualFold(name, "all")) {
			f.err = fmt.Errorf("env_vars[%d] is no name of a variable", i)
		}
	}
	e.inherit(r)
	f.err = cmp.Or(f.err, e.settle(r, f.text("cwd")))
}

// tools takes over which tools the client offers to its model, so that Junction offers no more.
func (e *Entry) tools(f *fields) {
	for _, key := range []string{"includeTools", "enabled_tools", "tools"} {
		list, isList := f.m[key].([]any)
		if only := f.list(key); isList && !slices.Contains(only, "*") {
			e.Only = append([]string{}, only...)
			for i, tool := range e.Only { // Gemini CLI permits name(arguments)
				e.Only[i], _, _ = strings.Cut(tool, "(")
			}
			if len(list) == 0 {
				e.Off = true
			}
		}
	}
	for _, key := range []string{"excludeTools", "disabled_tools", "disabledTools"} {
		e.Without = append(e.Without, f.list(key)...)
	}
	e.dropHidden()
}

// dropHidden takes the tools that Without names out of Only.
func (e *Entry) dropHidden() {
	e.Only = slices.DeleteFunc(e.Only, func(t string) bool {
		return slices.ContainsFunc(e.Without, func(glob string) bool {
			ok, _ := slashed.Match(glob, t)
			return ok || glob == t
		})
	})
}

// fields reads a mapping of unknown shape. The first mistake stays in err.
type fields struct {
	m   map[string]any
	err error
}

// text returns the first of keys that has a text.
func (f *fields) text(keys ...string) string {
	for _, k := range keys {
		if s, ok := scalar(f.m[k]); ok && s != "" {
			return s
		}
	}
	return ""
}

func (f *fields) list(key string) []string {
	values, _ := f.m[key].([]any)
	var list []string
	for i, v := range values {
		s, ok := scalar(v)
		if !ok && f.err == nil {
			f.err = fmt.Errorf("%s[%d] is not a text", key, i)
		}
		list = append(list, s)
	}
	return list
}

// pairs iterates over a mapping of texts in alphabetical order, so that notes have one order.
func (f *fields) pairs(key string) iter.Seq2[string, string] {
	values, _ := f.m[key].(map[string]any)
	return func(yield func(string, string) bool) {
		for _, k := range slices.Sorted(maps.Keys(values)) {
			s, ok := scalar(values[k])
			if values[k] != nil && !ok && f.err == nil {
				f.err = fmt.Errorf("%s.%s is not a text", key, short(k))
			}
			if !yield(k, s) {
				return
			}
		}
	}
}

// command returns the program and its arguments, in each of the forms that clients have.
func (f *fields) command() (program string, args []string) {
	switch c := f.m["command"].(type) {
	case []any:
		if list := f.list("command"); len(list) > 0 {
			return list[0], list[1:]
		}
		return "", nil
	case map[string]any:
		inner := fields{m: c}
		program, args = inner.text("path"), inner.list("args")
		f.err = inner.err
		return program, args
	}
	return f.text("command"), f.list("args")
}

func (f *fields) duration(key string, unit time.Duration) time.Duration {
	s, _ := scalar(f.m[key])
	n, err := json.Number(s).Float64()
	if err != nil || n <= 0 || n > float64(24*time.Hour/unit) {
		return 0
	}
	return time.Duration(n * float64(unit)).Round(time.Millisecond)
}

// scalar returns the text of a value that is one.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number, bool, int, int64, uint64, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}
