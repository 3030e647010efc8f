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
	token     string              // an environment variable that adds a header; "" if it has none
	flags     map[string]flagKind // others keep the command
}

// flagKind is what a flag of a bridge becomes.
type flagKind int

const (
	needed      flagKind = iota // the command stays: the flag adds a header, say, or hides tools
	lostSwitch                  // concerns the bridge alone
	lostValue                   // the same, with a value
	ofURL                       // the URL of a server with Streamable HTTP
	ofSSE                       // the URL of a server with HTTP+SSE
	ofTransport                 // a word for the transport
)

// bridges returns the known bridges with the flags of their versions mcp-remote 0.15, supergateway
// 4.0 and mcp-proxy 0.13.
func bridges() []*bridge {
	remote := &bridge{name: "mcp-remote", first: true, flags: map[string]flagKind{"--transport": ofTransport}}
	for _, f := range []string{"--allow-http", "--debug", "--silent", "--enable-proxy", "--keep-alive", "--ipv4",
		"--disable-cookies", "--device-code"} {
		remote.flags[f] = lostSwitch
	}
	for _, f := range []string{"--host", "--callback-path", "--auth-success-url", "--auth-timeout", "--connect-timeout",
		"--headers-timeout", "--body-timeout", "--ping-interval", "--protocol", "--client-metadata-url"} {
		remote.flags[f] = lostValue
	}
	super := &bridge{name: "supergateway", flags: map[string]flagKind{
		"--streamableHttp": ofURL, "--streamable-http": ofURL, "--sse": ofSSE, "--logLevel": lostValue,
		"--log-level": lostValue, "--protocolVersion": lostValue, "--protocol-version": lostValue,
	}}
	proxy := &bridge{name: "mcp-proxy", python: true, transport: sse, token: "API_ACCESS_TOKEN",
		flags: map[string]flagKind{
			"--transport": ofTransport, "--debug": lostSwitch, "--no-debug": lostSwitch, "--log-level": lostValue,
			"--pass-environment": lostSwitch, "--no-pass-environment": lostSwitch,
		}}
	return []*bridge{remote, super, proxy}
}

// bridged is what the arguments of a bridge say.
type bridged struct {
	by        *bridge
	url       string
	transport string   // the word of the file
	lost      []string // flags that concern the bridge alone
	kept      string   // the flag that keeps the command; "" for none
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
	got := &bridged{by: b, transport: b.transport}
	if b.first {
		if len(args) == 0 || !isURL(args[0]) {
			return nil
		}
		got.url, args = args[0], args[1:]
	}
	for len(args) > 0 {
		args = got.argument(args, isURL)
	}
	if got.url == "" {
		return nil
	}
	return got
}

// argument reads the first argument with its value, and returns the others.
func (g *bridged) argument(args []string, isURL func(string) bool) []string {
	word, rest := args[0], args[1:]
	if !strings.HasPrefix(word, "-") {
		_, number := strconv.Atoi(word)
		switch {
		case g.url == "" && isURL(word):
			g.url = word
		case g.by.first && number == nil:
			g.lost = append(g.lost, "the port "+word)
		default:
			g.keep("the argument " + short(word))
		}
		return rest
	}
	flag, value, inline := strings.Cut(word, "=")
	kind := g.by.flags[flag]
	switch hasValue := kind > lostSwitch; {
	case inline && g.by.first, hasValue && !inline && len(rest) == 0: // mcp-remote reads no values behind =
		kind = needed
	case hasValue && !inline:
		value, rest = rest[0], rest[1:]
	}
	g.use(kind, flag, value)
	return rest
}

// bridgeTransports has the transports of bridges, with their words of the file.
var bridgeTransports = map[string]string{"sse": sse, "sse-only": sse, "streamablehttp": "", "http-only": "",
	"sse-first": "", "http-first": ""}

// use takes over a flag.
func (g *bridged) use(kind flagKind, flag, value string) {
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
	default:
		g.keep(flag)
	}
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
	env := f.environment()
	for _, name := range f.list("env_vars") { // the client passes them on
		env[name] = ""
	}
	if _, adds := env[b.token]; adds {
		got.keep("the variable " + b.token)
	}
	if got.kept != "" {
		r.note("stays a command: Junction does not translate %s of %s", got.kept, b.name)
		return false
	}
	e.command = &Entry{Env: map[string]Value{}}
	e.command.local(f, r, command, args)
	e.remote(&fields{}, r, got.url)
	e.Transport = got.transport
	if f.text("cwd") != "" {
		got.lost = append(got.lost, "cwd")
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
