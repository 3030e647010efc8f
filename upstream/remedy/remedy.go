// Package remedy reads the last output of a server process that has ended, and names what the
// operator has to change: a variable, a package, a program, an argument or a folder.
//
// The output is written by the server, so it is not trusted. An answer contains only names of
// limited length and without control characters, and never the value of a variable.
package remedy

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"junction/upstream/shell"
)

// Process is a server process that has ended.
type Process struct {
	Command []string          // the program and its arguments, as configured
	Env     map[string]string // the variables that the entry sets
	Stderr  string            // its last output
	// Ours reports whether Junction's own environment has a variable. The process does not get it
	// unless the entry names it.
	Ours func(name string) bool
	// Variables is the file from which Junction has read its own variables as a service, or in the background; ""
	// if it has not.
	Variables string
}

// Of returns what the operator should do, or "" if the output shows no known mistake.
func Of(p *Process) string {
	for _, find := range []func(*Process) string{packOf, packageOf, programOf, downloadOf, by(daemons), by(modules),
		by(arguments), variablesOf, folderOf, by(ports), by(certificates), by(networks), engineOf} {
		if text := find(p); text != "" {
			return strings.ReplaceAll(text, place, p.place())
		}
	}
	return ""
}

// place stands in a remedy for the place where a person sets a variable of Junction: no name from the output has it.
const place = "\x00"

func (p *Process) place() string {
	if p.Variables == "" {
		return "where Junction starts"
	}
	return "in " + p.Variables
}

// daemons are the words of the programs of containers that their engine does not answer.
var daemons = []rule{
	{pattern(`(?i)Cannot connect to the Docker daemon at (\S+?)\.? Is the docker daemon running|` +
		`failed to connect to the docker API at ([^\s;]+)|error during connect: .*docker_?engine`),
		"Docker does not run (%s%s): start Docker Desktop, or the service of Docker with systemctl start docker; " +
			"Junction then connects by itself"},
	{pattern(`(?i)permission denied while trying to connect to the Docker (?:daemon|API)`),
		"this user may not use Docker: add the user to the group docker, and log in again"},
	{pattern(`(?i)Cannot connect to Podman`),
		"Podman does not run: start its machine with podman machine start; Junction then connects by itself"},
}

// packOf returns the remedy for a pack, whose program lists all mistakes by itself.
func packOf(p *Process) string {
	if len(p.Command) == 0 || strings.TrimSuffix(filepath.Base(p.Command[0]), ".exe") != "junction-pack" ||
		!strings.Contains(p.Stderr, "junction-pack: ") {
		return ""
	}
	if m := unsetInPack().FindAllStringSubmatch(p.Stderr, most); len(m) > 0 {
		var names []string
		for _, groups := range m {
			names = append(names, groups[1])
		}
		slices.Sort(names)
		return p.variables(slices.Compact(names))
	}
	return "correct the pack; this command lists its mistakes: " +
		shell.Join("junction-pack", "check", p.Command[len(p.Command)-1])
}

// unsetInPack is how a pack reports a variable that does not reach it.
var unsetInPack = pattern(`the environment variable ([A-Za-z_][A-Za-z0-9_]{0,63}) is not set; set it`)

// pattern compiles a regular expression when it is first used: most starts of the program use none of them.
func pattern(source string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(source) })
}

// rule is a pattern of the output, and the remedy: a format for fmt.Sprintf, with the groups of the
// pattern as arguments.
type rule struct {
	pattern func() *regexp.Regexp
	text    string
}

// longest is the most bytes of a name that an answer repeats.
const longest = 120

// first returns the remedy of the first rule that matches.
func first(rules []rule, text string) string {
	for _, r := range rules {
		groups := r.pattern().FindStringSubmatch(text)
		if groups == nil {
			continue
		}
		var names []any
		for _, name := range groups[1:] {
			names = append(names, clean(name))
		}
		return fmt.Sprintf(r.text, names...)
	}
	return ""
}

// by returns a function that applies rules to the output.
func by(rules []rule) func(*Process) string {
	return func(p *Process) string { return first(rules, p.Stderr) }
}

// clean returns a name from the output for display.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, name)
	return name[:min(len(name), longest)]
}

// item is how these programs quote the name of a package or an image.
const item = `['"]?(@?[^@'"\s,=<>(]+)`

// lastOfURL is a URL whose path ends with the name of a package.
const lastOfURL = `https?://[^/\s]+/\S*?((?:@[^/\s]+(?:%2[fF]|/))?[^/\s:?#()]+)`

const noPackage = "there is no package or image %s%s: correct its name in command"

// packages are the words of npm, uv, pip and Docker about a package that they cannot get: the version, the
// name, or the registry is the reason. White space of the output is folded. For other reasons, the error has
// the program's own line.
var packages = []rule{
	{pattern(`(?:No matching version found for|[Bb]ecause there is no version of) ` + item +
		`(?:@|==)(\S+?)\.?(?:\s|$)`),
		"the registry has the package %s, but not its version %s: correct the version in command"},
	{pattern(`(?:404 +(?:The requested resource )?'|` +
		`No matching distribution found for |satisfies the requirement |pull access denied for |manifest for )` + item +
		`|[Bb]ecause (\S+) was not found in the package registry`), noPackage},
	{pattern(`404 Not Found - GET ` + lastOfURL + `(?:\s|$)|` +
		`GET ` + lastOfURL + `:?(?: Not Found)? - 404\b|` +
		`HTTP status client error \(404 Not Found\) for url \(` + lastOfURL + `/?\)`),
		"there is no package or image %s%s%s: correct its name in command"},
	{pattern(npmCode + `E404\b`),
		"the registry of npm has no such package: correct its name in command, or correct the registry, which " +
			"npm config get registry shows"},
	{pattern(npmCode + `(?:(E40[13])|(ENEEDAUTH))\b`),
		"the registry of npm refuses the package (%s%s): sign in with npm login, or correct the registry, which " +
			"npm config get registry shows"},
	{pattern(npmCode + `(SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|CERT_HAS_EXPIRED|` +
		`UNABLE_TO_[A-Z_]+|ERR_TLS_CERT_ALTNAME_INVALID)\b`),
		"npm does not trust the certificate of its registry (%s): " + nodeCA},
	{pattern(npmCode + unreachable + `\b.*?request to (https?://[^/\s]+)/`),
		"npm cannot reach its registry (%s, %s): " + npmNetwork},
	{pattern(npmCode + unreachable + `\b`), "npm cannot reach its registry (%s): " + npmNetwork},
	{pattern(`(?:Failed to fetch|error sending request for url)\W+(https?://[^/\s)]+).*?` + untrustedByRust),
		"uv does not trust the certificate of the registry (%s, %s): " + otherCA},
	{pattern(`(?:Failed to fetch|error sending request for url)\W+(https?://[^/\s)]+)`),
		"the registry of packages cannot be reached (%s): check the network and the proxy settings"},
	{pattern(npmCode + `(?:ENOTEMPTY|EEXIST)\b`),
		"the downloads of npx are damaged: delete the folder ~/.npm/_npx, which npx makes again"},
	{pattern(npmCode + `EBADENGINE\b.*?Not compatible with your version of node/npm: (\S+)` +
		`.*?Required: \{[^{}]{0,60}?"node":"([^"{}]{1,60})"`), olderNode},
	{pattern(`ERROR: npm (v\S+) (?:is known not to run on|does not support) Node\.js (v[0-9.]*[0-9])`),
		"npm %s does not run with Node.js %s: install a newer Node.js, or write the full path of a newer npx into " +
			"command"},
}

// certificates are the words of Node, Rust and Python about a certificate that they do not trust.
var certificates = []rule{
	{pattern(`\b(SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|` +
		`UNABLE_TO_GET_ISSUER_CERT(?:_LOCALLY)?|` +
		`UNABLE_TO_VERIFY_LEAF_SIGNATURE)\b`), "the server does not trust a certificate (%s): " + nodeCA},
	{pattern(untrustedByRust + `|\bSSL: (CERTIFICATE_VERIFY_FAILED)\b`),
		"the server does not trust a certificate (%s%s): " + otherCA},
}

const (
	untrustedByRust = `invalid peer certificate: (UnknownIssuer)\b`
	byProxy         = "if a proxy of your network has made it, name the file of its CA in "
	whereCA         = " " + place + ", and restart Junction"
	nodeCA          = byProxy + "NODE_EXTRA_CA_CERTS" + whereCA
	otherCA         = byProxy + "SSL_CERT_FILE" + whereCA
)

const (
	npmCode     = `npm (?:error|ERR!) code `
	unreachable = `(ENOTFOUND|ECONN[A-Z]+|ETIMEDOUT|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ERR_SOCKET_TIMEOUT|FETCH_ERROR)`
	npmNetwork  = "check the network, the proxy (HTTPS_PROXY), and the registry, which npm config get registry shows"
	olderNode   = "the package %s needs another version of Node.js (%s): install that, or write the full path of its " +
		"npx into command"
)

func packageOf(p *Process) string {
	text := first(packages, strings.Join(strings.Fields(p.Stderr), " "))
	return strings.NewReplacer("%2f", "/", "%2F", "/").Replace(text)
}

// programs are the words of a shell and of env about a program that does not exist.
var programs = []rule{
	{pattern(`(?m)^(?:\S*sh|\S*dash|\S*bash)(?:: (?:line )?\d+)?: ([^\s:]+): (?:command )?not found\s*$`),
		"%s"},
	{pattern(`(?m)^\S*zsh:(?:\d+:)? command not found: (\S+)\s*$`), "%s"},
	{pattern(`(?m)env: [‘'"]?([^\s‘’'":]+)[’'"]?: No such file or directory`), "%s"},
	{pattern(`\bspawn (\S+) ENOENT\b`), "%s"},
	{pattern(`exec: "([^"]+)": executable file not found`), "%s"},
}

func programOf(p *Process) string {
	name := first(programs, p.Stderr)
	if name == "" {
		return ""
	}
	return "the command needs another program: " + Install(name)
}

// Install returns how to get a program that does not exist.
func Install(program string) string {
	name := program
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		return "install " + program + ", or correct its path in command"
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".exe"), ".cmd")
	product := ""
	switch name {
	case "npx", "npm", "node", "corepack":
		product = "Node.js"
	case "uvx", "uv":
		product = "uv"
	case "bunx", "bun":
		product = "Bun"
	case "docker":
		product = "Docker"
	case "python", "python3", "pip", "pip3":
		product = "Python"
	}
	if product == "" || product == name {
		return "install " + name + ", or write its full path into command"
	}
	return "install " + product + ", or write the full path of " + name + " into command"
}

// Installs reports whether a program may download a package before it starts the server.
func Installs(program string) bool {
	name := strings.ToLower(filepath.Base(strings.ReplaceAll(program, `\`, "/")))
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".exe"), ".cmd")
	return slices.Contains([]string{"npx", "uvx", "bunx", "pnpx", "pipx", "docker"}, name)
}

// modules are the words of Node and Python about a file or module that they cannot load.
var modules = []rule{
	{pattern(`No module named '?mcp\.server\.fastmcp\b|\bpin '?mcp<2\b`),
		"the server needs version 1 of the Python package mcp: put --with 'mcp<2' after uvx in command, or install " +
			"'mcp<2' for the Python of command"},
	{pattern(`Cannot find module '(/[^']+|[A-Za-z]:\\[^']+)'`),
		"there is no file %s: correct its path in command"},
	{pattern(`(?:No such built-in module: |Cannot find (?:module|package) ')(node:[a-z_/]+)`),
		"Node.js has no module %s: install a newer Node.js, or write the full path of a newer one into command"},
	{pattern(`Cannot find (?:module|package) '([^'/.][^']*)'`),
		"the Node package %s is not installed: run npm install where the server is"},
	{pattern(`can't open file '([^']+)'`), "there is no file %s: correct its path in command"},
	{pattern(`No module named '?([A-Za-z0-9_.]+)'?`),
		"the Python module %s is not installed: install it for the Python of command, or use uvx"},
}

// downloadOf returns the remedy for a package of npx that lacks a part of itself, such as after a download that was
// interrupted. There is no folder where a person could run npm install.
func downloadOf(p *Process) string {
	if len(p.Command) == 0 || !strings.Contains(p.Stderr, "_npx") || shell.ProgramName(p.Command[0]) != "npx" {
		return ""
	}
	m := lostPart().FindStringSubmatch(p.Stderr)
	if m == nil {
		return ""
	}
	return "the package that npx has downloaded lacks " + clean(m[1]) + ": delete the folder ~/.npm/_npx, which npx " +
		"makes again"
}

var lostPart = pattern(`Cannot find (?:module|package) '([^'/.:][^':]*)'`)

// engineOf returns the remedy for a server that has ended, and whose package needs another version of Node.js than
// runs it: by the warning of npm, or by a word that an older version does not know. Servers work in spite of the
// warning, so that other reasons go first.
func engineOf(p *Process) string {
	text := strings.Join(strings.Fields(p.Stderr), " ")
	if m := engine().FindStringSubmatch(text); m != nil {
		return fmt.Sprintf(olderNode, clean(m[1]), "node "+strings.Join(strings.Fields(m[2]), " "))
	}
	word := unknownToNode().FindStringSubmatch(text)
	if version := nodeVersion().FindStringSubmatch(text); word != nil && version != nil {
		return fmt.Sprintf("the server needs a newer Node.js than %s, which does not know %s: install one, or write "+
			"the full path of a newer one into command", clean(version[1]), clean(cmp.Or(word[1:]...)))
	}
	return ""
}

var (
	engine = pattern(`EBADENGINE package: '([^']{1,100})',(?: npm \S+ EBADENGINE)? ` +
		`required: \{[^{}]{0,60}?node: '([^']{1,60})'`)
	unknownToNode = pattern(`ReferenceError: (File|fetch|Headers|FormData|Blob|WebSocket|CustomEvent|` +
		`ReadableStream|Iterator|structuredClone|navigator) is not defined|` +
		`SyntaxError: Unexpected token '?(\?\?=|\|\|=|&&=|\?\.|\?\?|\?|\.|with)'?`)
	nodeVersion = pattern(`Node\.js (v\d[0-9.]{0,20})$`)
)

// arguments are the words of a program that was started with other arguments than it needs.
var arguments = []rule{
	{pattern(`the following (?:required )?arguments ` +
		`(?:are required|were not provided):\s*([-<\[\w][^\r\n]*)`),
		"add the argument %s to command"},
	{pattern(`required option '([^']+)' not specified`), "add the option %s to command"},
	{pattern(`(?:unrecognized arguments?|unknown option|unexpected argument|` +
		`no such option|unknown flag):? '?(--?[\w-]+)`),
		"the program has no option %s: remove it from command, or correct it"},
	{pattern(`(?i)(?:^|\n)usage: `), "the program shows its usage: correct the arguments in command"},
}

// folders are the words about a file or folder that does not exist.
var folders = []rule{
	{pattern(`ENOENT: no such file or directory, \w+ '([^']+)'`), "%s"},
	{pattern(`No such file or directory: '([^']+)'`), "%s"},
	{pattern(`\b(?:open|stat|chdir|lstat) (/[^\s:]+): no such file or directory`), "%s"},
	{pattern(`(/[^\s'":,]+)['"]? (?:does not exist|was not found|not found)`), "%s"},
	{pattern(`(?i)cannot (?:access|open|read|find) (?:the )?(?:directory|folder|file) ['"]?(/[^\s'":,]+)`),
		"%s"},
}

func folderOf(p *Process) string {
	name := first(folders, p.Stderr)
	switch {
	case name == "":
		return ""
	case slices.ContainsFunc(p.Command, func(a string) bool { return strings.Contains(a, name) }):
		return "create " + name + ", or correct it in command"
	}
	return "create " + name + ", or correct the setting that names it (command, env, dir)"
}

// Twice returns the line in which a server reports that another process has what it needs: a port, a
// lock or a profile. It returns "" if there is none.
func Twice(text string) string { return strings.TrimSpace(twice().FindString(text)) }

var twice = pattern(`(?im)^[^\r\n]{0,300}?(?:\bEADDRINUSE\b|\baddress already in use\b|` +
	`\bonly one usage of each socket address\b|\b(?:is|are) already (?:in use|running|locked)\b|` +
	`\banother (?:instance|process|server)\b[^\r\n]{0,60}\b(?:running|using|holds?|active|started)\b|` +
	`\bdatabase is locked\b|\b(?:acquire|obtain|get) (?:the |a |an )?(?:exclusive )?lock\b|\bProcessSingleton\b)` +
	`[^\r\n]{0,200}`)

// networks are the words about another machine that cannot be found or reached. The name of a host may
// be missing.
var networks = []rule{
	{pattern(`\bgetaddrinfo (?:ENOTFOUND|EAI_AGAIN) ([^\s'",]+)`), unresolved},
	{pattern(`\blookup ([^\s:]+)(?: on [^\s]+)?: (?:no such host|server misbehaving|i/o timeout|` +
		`Temporary failure in name resolution)`), unresolved},
	{pattern(`Name or service not known|Temporary failure in name resolution|` +
		`nodename nor servname provided|failed to lookup address information`),
		strings.Replace(unresolved, "the host %s:", "a host:", 1)},
	{pattern(`\bconnect ECONNREFUSED ([^\s'",]+)`),
		"the server cannot connect to %s: start what listens there, or correct the setting that names it " +
			"(command, env)"},
}

const unresolved = "the server cannot resolve the host %s: check the network, and the setting that names the host " +
	"(command, env)"

var ports = []rule{{pattern(`(?i)(?:EADDRINUSE|address already in use)[^\r\n]*?:(\d+)\b`),
	"another process uses the port %s: stop it, or give the server another port"}}

var (
	// variable is a name that only variables and constants have.
	variable = pattern(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)
	// named is a variable of any name, by the words around it.
	named = pattern(`(?i:environment variables?|env vars?):? ['"` + "`" + `$]?([A-Z][A-Z0-9_]{2,})\b|` +
		`\b([A-Z][A-Z0-9_]{2,})['"` + "`" +
		`]? (?i:environment variable|env var)|process\.env\.([A-Z][A-Z0-9_]+)|KeyError: '([A-Z][A-Z0-9_]+)'`)
	// lacks are the words about something that is not there.
	lacks = pattern(`(?i)\brequired?\b|\brequires\b|` +
		`\bnot (?:been )?(?:set|defined|provided|found|specified|configured)\b|` +
		`\bmust (?:be )?(?:set|provide|specif)|\bunset\b|\bmissing\b|\bundefined\b|` +
		`\bplease (?:set|provide|add|specify)\b|\bempty\b|` +
		`environment variable|env var|KeyError`)
	// harmless are the words of a line that does not explain the end of the process.
	harmless = pattern(`(?i)\bwarn(?:ing)?\b|\bdefault|\bdeprecat|\boptional\b|\bfalling back\b`)
	// codes are constants that are no variables.
	codes = pattern(`^ERR_|NOT_FOUND$|_ERROR$|^UNABLE_TO|_CERT$|^SELF_SIGNED|^UND_ERR`)
)

// most is the most variables that an answer names.
const most = 6

// variablesOf looks for the last line about missing variables. The names may follow in a list.
func variablesOf(p *Process) string {
	lines := strings.Split(strings.ReplaceAll(p.Stderr, "\r", ""), "\n")
	for i, line := range slices.Backward(lines) {
		if !lacks().MatchString(line) || harmless().MatchString(line) {
			continue
		}
		names := variablesIn(line)
		for _, next := range lines[i+1:] {
			more := variablesIn(next)
			if len(names) > 0 && !strings.HasSuffix(strings.TrimSpace(line), ":") || len(more) == 0 {
				break
			}
			names = append(names, more...)
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(names) > 0 {
			return p.variables(names[:min(len(names), most)])
		}
	}
	return ""
}

func variablesIn(line string) (names []string) {
	for _, groups := range named().FindAllStringSubmatch(line, -1) {
		names = append(names, cmp.Or(groups[1:]...))
	}
	names = append(names, variable().FindAllString(line, -1)...)
	return slices.DeleteFunc(names, func(n string) bool { return codes().MatchString(n) || len(n) > 64 })
}

// variables returns how the entry gives the process its variables.
func (p *Process) variables(names []string) string {
	var set, inherit, given []string
	for _, name := range names {
		_, there := p.Env[name]
		switch {
		case there:
			given = append(given, name)
		case p.Ours != nil && p.Ours(name):
			inherit = append(inherit, name)
		default:
			set = append(set, name+": …")
		}
	}
	var parts []string
	if len(set) > 0 {
		parts = append(parts, "set env: { "+strings.Join(set, ", ")+" }")
	}
	if len(inherit) > 0 {
		parts = append(parts, "set inherit_env: ["+strings.Join(inherit, ", ")+
			"], because a command gets only the variables that its entry names")
	}
	if len(parts) == 0 {
		return "correct the value of " + strings.Join(given, ", ") + " in env; if the entry takes it from the " +
			"variables of Junction, correct it " + place + ", and restart Junction"
	}
	return strings.Join(parts, "; ")
}
