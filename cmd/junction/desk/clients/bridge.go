package clients

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A bridge is a program that a client starts because the client cannot connect to a URL itself. It
// passes messages on between standard input and output and the URL.
type bridge struct {
	name      string
	python    bool                // it is a package of Python, otherwise one of npm
	first     bool                // the URL is the first argument; otherwise a flag has it, or any argument
	transport string              // the word of the file unless a flag says otherwise
	expands   bool                // it replaces ${NAME} in headers
	token     string              // an environment variable with a bearer token; "" if it has none
	flags     map[string]flagKind // others, and those without an equivalent, keep the command
}

// flagKind is what a flag of a bridge becomes.
type flagKind int

const (
	needed     flagKind = iota // Junction has no equivalent, and the server may not work without it
	lostSwitch                 // concerns the bridge alone
	lostValue                  // the same, with a value
	ofURL                      // the URL of a server with Streamable HTTP
	ofSSE                      // the URL of a server with HTTP+SSE
	ofTransport
	ofHeader     // 'NAME: VALUE'
	ofHeaderPair // NAME VALUE
	ofBearer     // a bearer token
	ofUser       // for basic authentication
	ofPassword
	ofHidden // a glob of tools that the client does not see
)

// bridges returns the known bridges with the flags of their versions mcp-remote 0.15, supergateway
// 4.0 and mcp-proxy 0.13.
func bridges() []*bridge {
	remote := &bridge{name: "mcp-remote", first: true, expands: true, flags: map[string]flagKind{
		"--header": ofHeader, "--transport": ofTransport, "--ignore-tool": ofHidden,
	}}
	for _, f := range []string{"--allow-http", "--debug", "--silent", "--enable-proxy", "--keep-alive", "--ipv4",
		"--disable-cookies", "--device-code"} {
		remote.flags[f] = lostSwitch
	}
	for _, f := range []string{"--host", "--callback-path", "--auth-success-url", "--auth-timeout", "--connect-timeout",
		"--headers-timeout", "--body-timeout", "--ping-interval", "--protocol", "--client-metadata-url"} {
		remote.flags[f] = lostValue
	}
	super := &bridge{name: "supergateway", flags: map[string]flagKind{
		"--streamableHttp": ofURL, "--streamable-http": ofURL, "--sse": ofSSE, "--header": ofHeader,
		"--oauth2Bearer": ofBearer, "--oauth2-bearer": ofBearer, "--logLevel": lostValue, "--log-level": lostValue,
		"--protocolVersion": lostValue, "--protocol-version": lostValue,
	}}
	proxy := &bridge{name: "mcp-proxy", python: true, transport: sse,
		token: "API_ACCESS_TOKEN", flags: map[string]flagKind{
			"-H": ofHeaderPair, "--headers": ofHeaderPair, "--transport": ofTransport, "--username": ofUser,
			"--password": ofPassword, "--debug": lostSwitch, "--no-debug": lostSwitch, "--log-level": lostValue,
			"--pass-environment": lostSwitch, "--no-pass-environment": lostSwitch,
		}}
	return []*bridge{remote, super, proxy}
}

// bridged is what the arguments of a bridge say.
type bridged struct {
	by             *bridge
	url            string
	transport      string // the word of the file
	headers        map[string]string
	user, password string
	hidden         []string // tools
	lost           []string // flags without an equivalent
	kept           string   // the flag that keeps the command; "" for none
}

// bridgeOf returns the bridge that a command runs, and the arguments of the bridge; nil for other
// programs.
func bridgeOf(words []string) (*bridge, []string) {
	program := programOf(words[0])
	if program == "cmd" && len(words) > 2 && strings.EqualFold(words[1], "/c") {
		return bridgeOf(words[2:])
	}
	rest, python := words, false
	for _, l := range launchers() {
		begin := strings.Fields(l.words)
		if program == begin[0] && len(words) > len(begin) && slices.Equal(words[1:len(begin)], begin[1:]) {
			rest, python = l.skip(words[len(begin):]), l.python
			break
		}
	}
	if len(rest) == 0 {
		return nil, nil
	}
	name := versionOf.ReplaceAllString(programOf(rest[0]), "")
	for _, b := range bridges() {
		if b.name == name && (len(rest) == len(words) || b.python == python) {
			return b, rest[1:]
		}
	}
	return nil, nil
}

var versionOf = regexp.MustCompile(`(@|==).*$`)

// programOf returns the name of a program without its folder and the suffixes of Windows.
func programOf(word string) string {
	word = word[strings.LastIndexAny(word, `/\`)+1:]
	return windowsSuffix.ReplaceAllString(strings.ToLower(word), "")
}

var windowsSuffix = regexp.MustCompile(`\.(exe|cmd|bat|ps1)$`)

// A launcher installs and runs packages.
type launcher struct {
	words    string // that it begins with
	python   bool
	switches []string
	values   []string // flags with a value
}

func launchers() []launcher {
	yes := []string{"-y", "--yes", "-q", "--quiet", "--"}
	pkg := []string{"-p", "--package"}
	uv := []string{"--from", "--python", "-p", "--with"}
	return []launcher{
		{"npx", false, yes, pkg}, {"npm exec", false, yes, pkg}, {"npm x", false, yes, pkg},
		{"pnpx", false, yes, pkg}, {"pnpm dlx", false, yes, []string{"--package"}}, {"yarn dlx", false, yes, pkg},
		{"bunx", false, append(yes, "--bun"), pkg}, {"bun x", false, append(yes, "--bun"), pkg},
		{"uvx", true, yes, uv}, {"uv tool run", true, yes, uv}, {"pipx run", true, yes, []string{"--spec", "--python"}},
	}
}

// skip returns the words from the package or program on; nil after an unknown flag.
func (l *launcher) skip(words []string) []string {
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		flag, _, inline := strings.Cut(words[0], "=")
		switch {
		case slices.Contains(l.values, flag) && inline, slices.Contains(l.switches, words[0]):
			words = words[1:]
		case slices.Contains(l.values, flag) && len(words) > 1:
			words = words[2:]
		default:
			return nil
		}
	}
	return words
}

// parse reads the arguments. isURL reports whether an argument is a URL. The result is nil if the
// bridge connects to no URL.
func (b *bridge) parse(args []string, isURL func(string) bool) *bridged {
	got := &bridged{by: b, transport: b.transport, headers: map[string]string{}}
	if b.first {
		args = slices.Clone(args)
		at := 0
		for at < len(args) && b.flags[args[at]] == ofHeader { // only these may stand before the URL
			at += 2
		}
		if at >= len(args) || !isURL(args[at]) {
			return nil
		}
		got.url = args[at]
		args = slices.Delete(args, at, at+1)
	}
	for len(args) > 0 {
		args = got.argument(args, isURL)
	}
	if got.url == "" {
		return nil
	}
	return got
}

// argument reads the first argument with its values, and returns the others.
func (g *bridged) argument(args []string, isURL func(string) bool) []string {
	b, word := g.by, args[0]
	flag, value, inline := strings.Cut(word, "=")
	if !strings.HasPrefix(word, "-") {
		_, number := strconv.Atoi(word)
		switch {
		case g.url == "" && isURL(word):
			g.url = word
		case b.first && number == nil:
			g.lost = append(g.lost, "the port "+word)
		default:
			g.keep("the argument " + short(word))
		}
		return args[1:]
	}
	kind, values := b.flags[flag], 1
	switch kind {
	case needed, lostSwitch:
		values = 0
	case ofHeaderPair:
		values = 2
	}
	rest := args[1:]
	if !inline || b.first { // mcp-remote reads no values behind =
		if inline || len(rest) < values {
			kind, values = needed, 0
		}
		if values > 0 {
			value = rest[0]
		}
	} else {
		values--
	}
	name := value
	if kind == ofHeaderPair && values == 2 {
		value = rest[1]
	}
	g.use(kind, flag, name, value)
	rest = rest[max(values, 0):]
	for kind == ofHeader && !b.first && len(rest) > 0 && headerLine.MatchString(rest[0]) { // a flag with several values
		g.use(kind, flag, "", rest[0])
		rest = rest[1:]
	}
	return rest
}

// bridgeTransports has the transports of bridges, with their words of the file.
var bridgeTransports = map[string]string{"sse": sse, "sse-only": sse, "streamablehttp": "", "http-only": "",
	"sse-first": "", "http-first": ""}

// use takes over a flag. name is the name of a header in two words.
func (g *bridged) use(kind flagKind, flag, name, value string) {
	switch kind {
	case lostSwitch, lostValue:
		g.lost = append(g.lost, flag)
	case ofURL:
		g.url, g.transport = value, ""
	case ofSSE:
		g.url, g.transport = value, sse
	case ofTransport:
		var known bool
		if g.transport, known = bridgeTransports[value]; !known {
			g.keep(flag + " " + short(value))
		}
	case ofHeader:
		field, rest, ok := strings.Cut(value, ":")
		if field = strings.TrimSpace(field); !ok || field == "" {
			g.lost = append(g.lost, flag+" without a name")
			return
		}
		g.header(field, strings.TrimSpace(rest))
	case ofHeaderPair:
		g.header(name, value)
	case ofBearer:
		g.header("Authorization", "Bearer "+value)
	case ofUser:
		g.user = value
	case ofPassword:
		g.password = value
	case ofHidden:
		if strings.ContainsAny(value, `?[]\`) { // they mean more in Junction
			g.keep(flag + " " + short(value))
		}
		g.hidden = append(g.hidden, value)
	default:
		g.keep(flag)
	}
}

func (g *bridged) header(name, value string) {
	if OwnHeader(name) {
		g.lost = append(g.lost, "the header "+short(name))
		return
	}
	g.headers[name] = value
}

// keep remembers the first reason to keep the command.
func (g *bridged) keep(reason string) {
	if g.kept == "" {
		g.kept = reason
	}
}

// bridge translates the command of a bridge into the URL that it connects to. It returns false if
// the command is no bridge, or has to stay.
func (e *Entry) bridge(f *fields, r *reader, command string, args []string) bool {
	b, rest := bridgeOf(append([]string{command}, args...))
	if b == nil {
		return false
	}
	got := b.parse(rest, func(word string) bool {
		text := r.value(word).Expand(r.home.Getenv)
		return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
	})
	if got == nil {
		return false
	}
	if (got.user == "") != (got.password == "") {
		got.keep("--username without --password")
	}
	if got.kept != "" {
		r.note("stays a command, because Junction has no equivalent for %s of %s", got.kept, b.name)
		return false
	}
	e.command = &Entry{Env: map[string]Value{}}
	e.command.local(f, r, command, args)
	env := f.environment()
	got.expand(env)
	headers := map[string]any{}
	for name, value := range got.headers {
		headers[name] = value
	}
	if got.user != "" {
		headers["Authorization"] = "Basic " + basicAuth(got.user, got.password)
	}
	own := r.client
	if b.expands {
		r.client |= dollar
	}
	e.remote(&fields{m: map[string]any{"headers": headers}}, r, got.url)
	r.client = own
	e.Transport = got.transport
	e.Without = got.hidden
	if len(e.Without) > 0 {
		r.note("the tools of --ignore-tool are compared in upper and lower case")
	}
	if f.text("cwd") != "" {
		got.lost = append(got.lost, "cwd")
	}
	for _, name := range f.list("env_vars") { // the client passes them on
		if !slices.ContainsFunc(slices.Collect(maps.Values(got.headers)), func(value string) bool {
			return b.expands && strings.Contains(value, "${"+name+"}")
		}) {
			env[name] = ""
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		got.lost = append(got.lost, "the variable "+short(name))
	}
	r.note("connects to the URL without %s", b.name)
	if len(got.lost) > 0 {
		r.note("not imported: %s", strings.Join(got.lost, ", "))
	}
	return true
}

// expand replaces the variables in headers that the entry sets itself, and removes those from env.
func (g *bridged) expand(env map[string]string) {
	if token := env[g.by.token]; g.by.token != "" && token != "" {
		g.headers["Authorization"] = "Bearer " + token
		delete(env, g.by.token)
	}
	if !g.by.expands {
		return
	}
	used := map[string]bool{}
	for name, value := range g.headers {
		g.headers[name] = bracedVariable.ReplaceAllStringFunc(value, func(whole string) string {
			variable := whole[2 : len(whole)-1]
			text, ok := env[variable]
			if !ok {
				return whole
			}
			used[variable] = true
			return text
		})
	}
	maps.DeleteFunc(env, func(name, _ string) bool { return used[name] })
}

var bracedVariable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// environment returns the variables of a command.
func (f *fields) environment() map[string]string {
	env := map[string]string{}
	read := func(from *fields, key string) {
		for name, value := range from.pairs(key) {
			env[name] = value
		}
		if f.err == nil {
			f.err = from.err
		}
	}
	read(f, "env")
	read(f, "environment")
	if c, ok := f.m["command"].(map[string]any); ok {
		read(&fields{m: c}, "env")
	}
	return env
}
