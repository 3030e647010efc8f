package registry

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
)

// Given contains the values that a user gives for the inputs of a server.
type Given struct {
	Env, Headers map[string]string
	Values       map[string][]string // for arguments and variables, by their names
}

// Entry returns the entry for one of the ways to run the server. name is the name of the upstream. The
// error lists all inputs that are missing.
func (s *Server) Entry(h clients.Home, name, way string, given Given) (*clients.Entry, error) {
	t := &translator{home: h, upstream: name, given: given, used: map[string]bool{}}
	e := &clients.Entry{Env: map[string]clients.Value{}, Headers: map[string]clients.Value{}}
	switch remote, p := s.remote(), s.packageOf(way); {
	case way == Remotely && remote != nil:
		t.remote(e, remote)
	case p != nil:
		t.local(e, p)
	default:
		return nil, fmt.Errorf("%s cannot be run that way; it can be run by %s", s.Name, strings.Join(s.Ways(), ", "))
	}
	t.unused()
	switch {
	case len(t.refused) > 0:
		return nil, errors.New(strings.Join(t.refused, "; "))
	case len(t.missing) > 0:
		return nil, fmt.Errorf("%s needs %s", s.Name, strings.Join(t.missing, ", "))
	}
	return e, nil
}

// translator makes an entry, and collects all mistakes, so that the user reads them at once.
type translator struct {
	home     clients.Home
	upstream string
	given    Given
	used     map[string]bool // keys of given.Values
	missing  []string
	refused  []string
}

func (t *translator) refuse(format string, args ...any) {
	if reason := fmt.Sprintf(format, args...); !slices.Contains(t.refused, reason) {
		t.refused = append(t.refused, reason)
	}
}

func (t *translator) remote(e *clients.Entry, r *Remote) {
	e.Transport = r.transport()
	e.URL = t.expand(r.URL, r.Variables)
	for i := range r.Headers {
		f := &r.Headers[i]
		if !token.MatchString(f.Name) || clients.OwnHeader(f.Name) {
			t.refuse("the registry sets the header %s, which is not allowed", prose.Quote(f.Name))
			continue
		}
		given, ok := lookUpFold(t.given.Headers, f.Name)
		if !ok && f.Required && f.Value == "" && f.Default == "" {
			given, ok = "${"+t.variable(f.Name)+"}", true
		}
		if v := t.field(f, given, ok); v != nil {
			e.Headers[f.Name] = v
			if !ok {
				e.Published = append(e.Published, f.Name)
			}
		}
	}
	t.extra(e.Headers, t.given.Headers)
	if len(t.given.Env) > 0 {
		t.refuse("--env is for a command; a URL takes --header")
	}
}

var (
	token   = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// launcherEnv are variables that change which program runs, or where its package comes from.
	launcherEnv = regexp.MustCompile(`(?i)^(PATH|HOME|SHELL|IFS|BASH_ENV|ENV|` +
		`(LD|DYLD|NODE|NPM|DOCKER|PYTHON|UV|PIP|SSL|JUNCTION)_.*|` +
		`PYTHON[A-Z]*|.*_PROXY)$`)
	npmName  = regexp.MustCompile(`^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*$`)
	pypiName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	ociName  = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._/:-]*(@sha256:[a-f0-9]{64})?$`)
	// exact are versions that name one release: others, such as next, ^1.2 and 1, name another one
	// tomorrow. A tag of an image has at least a number; only a digest names one image for ever.
	exact = map[string]*regexp.Regexp{
		NPM:  regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`),
		PyPI: regexp.MustCompile(`^([0-9]+!)?[0-9]+(\.[0-9]+)*([._-]?[A-Za-z]+[._-]?[0-9]*)*(\+[0-9A-Za-z._-]+)?$`),
		OCI:  regexp.MustCompile(`^v?[0-9][A-Za-z0-9._-]*$`),
	}
	// pythonVersion is a version, or a range of versions.
	pythonVersion = regexp.MustCompile(`^[<>=~!]*[0-9][0-9.,*<>=~!]*$`)
)

// local translates a package: the program that runs it, the arguments of that program, the package,
// and the arguments of the server.
func (t *translator) local(e *clients.Entry, p *Package) {
	var begin, pkg []string
	version := p.Version
	switch {
	case p.RegistryType == NPM && npmName.MatchString(p.Identifier) && from(p.BaseURL, "https://registry.npmjs.org"):
		begin, pkg = []string{"npx", "-y"}, []string{p.Identifier + "@" + version}
	case p.RegistryType == PyPI && pypiName.MatchString(p.Identifier) && from(p.BaseURL, "https://pypi.org"):
		begin, pkg = []string{"uvx"}, []string{p.Identifier + "==" + version}
	case p.RegistryType == OCI:
		var image string
		image, version = t.image(e, p)
		begin, pkg = []string{"docker", "run", "-i", "--rm"}, []string{image}
	default:
		t.refuse("the package %s %s of %s cannot be used; add the server by its command",
			prose.Quote(p.Identifier), prose.Quote(p.Version), prose.Quote(p.BaseURL))
		return
	}
	if !strings.Contains(pkg[0], "@sha256:") && !exact[p.RegistryType].MatchString(version) {
		t.refuse("the registry names no exact version of %s, but %s, so that its publisher could replace what you "+
			"have looked at; if you accept that, add the server by its command", prose.Quote(p.Identifier),
			prose.Quote(version))
	}
	e.Command = literals(begin)
	e.Command = append(e.Command, t.runtime(p)...)
	for i := range p.Env {
		f := &p.Env[i]
		given, ok := t.given.Env[f.Name]
		byPublisher := !ok && (f.Value != "" || f.Default != "")
		if !envName.MatchString(f.Name) || byPublisher && launcherEnv.MatchString(f.Name) {
			t.refuse("the registry sets the environment variable %s, which is not allowed; give it with --env",
				prose.Quote(f.Name))
			continue
		}
		if !ok && f.Required && f.Value == "" && f.Default == "" { // only --env passes a variable of Junction on
			t.lack("--env "+f.Name+", or --env "+f.Name+"=VALUE", &f.Input)
			continue
		}
		if v := t.field(f, given, ok); v != nil {
			e.Env[f.Name] = v
			if !ok {
				e.Published = append(e.Published, f.Name)
			}
		}
	}
	t.extra(e.Env, t.given.Env)
	if p.RegistryType == OCI { // docker passes the variables on
		for _, name := range slices.Sorted(maps.Keys(e.Env)) {
			e.Command = append(e.Command, literals([]string{"-e", name})...)
		}
	}
	e.Command = append(e.Command, literals(pkg)...)
	for i := range p.PackageArgs {
		e.Command = append(e.Command, t.argument(&p.PackageArgs[i])...)
	}
	if len(t.given.Headers) > 0 {
		t.refuse("--header is for a URL; a command takes --env")
	}
}

// from reports whether a package comes from the registry that its program uses.
func from(base, usual string) bool { return base == "" || strings.TrimSuffix(base, "/") == usual }

// image returns the name of an image with its tag or digest. version is the tag, or "" if there is
// none or a digest makes it irrelevant.
func (t *translator) image(e *clients.Entry, p *Package) (image, version string) {
	image = p.Identifier
	if host, _, _ := strings.Cut(image, "/"); !strings.ContainsAny(host, ".:") && p.BaseURL != "" {
		image = strings.TrimPrefix(strings.TrimSuffix(p.BaseURL, "/"), "https://") + "/" + image
	}
	last := image[strings.LastIndex(image, "/")+1:]
	if p.Version != "" && !strings.ContainsAny(last, ":@") {
		image, last = image+":"+p.Version, last+":"+p.Version
	}
	if !ociName.MatchString(image) {
		t.refuse("the image %s has no valid name", prose.Quote(image))
	}
	if strings.Contains(last, "@") {
		return image, ""
	}
	_, version, _ = strings.Cut(last, ":")
	e.Notes = append(e.Notes, "the publisher can replace the image of this tag; only a digest (@sha256:…) is exact")
	return image, version
}

func literals(words []string) []clients.Value {
	var list []clients.Value
	for _, w := range words {
		list = append(list, clients.Literal(w))
	}
	return list
}

// runtimeFlags are the arguments that a registry may give to npx, uvx and docker.
var runtimeFlags = map[string]map[string]flagKind{
	NPM:  {"-y": there, "--yes": there},
	PyPI: {"--python": permitted},
	OCI: {"run": there, "-i": there, "--interactive": there, "--rm": there, "--init": permitted, "-e": permitted,
		"--env": permitted, "-v": mount, "--volume": mount, "--mount": mount},
}

type flagKind int

const (
	permitted flagKind = iota
	there              // every command has it already
	mount              // shares a folder of this machine
)

// chosen reports whether a mount of docker shares only a folder of this machine that the user
// names.
func chosen(a *Argument) bool {
	source, sources := "", 0
	if a.Name != "--mount" {
		source, _, _ = strings.Cut(a.Value, ":")
		sources = 1
	} else {
		for part := range strings.SplitSeq(a.Value, ",") {
			switch key, value, _ := strings.Cut(part, "="); key {
			case "src", "source":
				source = value
				sources++
			case "type", "dst", "destination", "target", "ro", "readonly":
				if key == "type" && value != "bind" {
					return false
				}
			default:
				return false
			}
		}
	}
	for _, in := range a.Variables {
		if strings.ContainsAny(in.Value+in.Default, ",=") { // it could be another part
			return false
		}
	}
	whole := inBraces.FindStringSubmatch(source)
	if sources != 1 || whole == nil || whole[0] != source {
		return false
	}
	in, ok := a.Variables[whole[1]]
	return ok && in.Value == "" && in.Default == ""
}

// runtime returns the arguments of the program that runs a package.
func (t *translator) runtime(p *Package) []clients.Value {
	var list []clients.Value
	for i := range p.RuntimeArgs {
		a := &p.RuntimeArgs[i]
		flag := a.Name
		if a.Type != "named" {
			flag = a.Value
		}
		kind, known := runtimeFlags[p.RegistryType][flag]
		if !known || kind == mount && !chosen(a) {
			t.refuse("the registry asks for an argument that can give the server more of this machine: %s; add the "+
				"server by its command if you trust it",
				prose.Quote(strings.TrimSpace(flag+" "+a.Value)))
			continue
		}
		if kind == there {
			continue
		}
		words := t.argument(a)
		if !t.fits(a, flag, words) {
			t.refuse("the registry gives %s a value that it must not have, or none; add the server by its command if "+
				"you trust it",
				prose.Quote(flag))
			continue
		}
		list = append(list, words...)
	}
	return list
}

// fits reports whether a flag has the values that it takes. The program would read the next word as
// the missing value, or a superfluous value as another option.
func (t *translator) fits(a *Argument, flag string, words []clients.Value) bool {
	if flag == "--init" {
		return len(words) <= 1
	}
	if a.Type != "named" || len(words)%2 != 0 {
		return false
	}
	chosen := a.Value
	if chosen == "" && len(t.given.Values[a.key()]) == 0 {
		chosen = a.Default
	}
	switch {
	case chosen == "": // the person gives it
		return true
	case flag == "--python": // not the path of a program
		return pythonVersion.MatchString(chosen)
	case flag == "-e", flag == "--env": // without = it would read a variable of this machine
		name, _, ok := strings.Cut(chosen, "=")
		return ok && envName.MatchString(name)
	}
	return true
}

// argument returns the words of an argument, none for an optional one without a value.
func (t *translator) argument(a *Argument) []clients.Value {
	var list []clients.Value
	add := func(v clients.Value) {
		if a.Type == "named" {
			list = append(list, clients.Literal(a.Name))
		}
		if v != nil {
			list = append(list, v)
		}
	}
	if a.Type == "named" && !strings.HasPrefix(a.Name, "-") {
		t.refuse("the registry has the flag %s, which does not begin with -", prose.Quote(a.Name))
		return nil
	}
	key := a.key()
	given := t.given.Values[key]
	if a.Value != "" { // fixed, but for its variables
		add(t.expand(a.Value, a.Variables))
		return list
	}
	t.used[key] = t.used[key] || key != "" && len(given) > 0
	switch {
	case len(given) > 1 && !a.Repeated:
		t.refuse("--set %s is given more than once", key)
	case len(given) > 0:
		for _, text := range given {
			add(t.userValue(key, text, &a.Input))
		}
	case a.Default != "":
		add(clients.Literal(a.Default))
	case a.Required && a.Type == "named" && a.Format == "boolean":
		add(nil) // a switch
	case a.Required:
		t.lack("--set "+prose.Flat(key)+"=VALUE", &a.Input)
	}
	return list
}

// field returns the value of an environment variable or a header, which ok says that the user has
// given; nil if it is left out.
func (t *translator) field(f *Field, given string, ok bool) clients.Value {
	switch {
	case ok:
		return t.userValue(f.Name, given, &f.Input)
	case f.Value != "":
		optional := false
		v := t.expandOr(f.Value, declared(f), func(name string, in *Input) clients.Value {
			optional = optional || !f.Required && !in.Required
			return clients.Variable(t.variable(name))
		})
		if optional {
			return nil
		}
		return v
	case f.Default != "":
		return clients.Literal(f.Default)
	}
	return nil
}

var braced = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// declared returns the variables of a field. Many servers of the registry have a {name} in a header
// and do not declare it; it is a variable, too, since no header has braces.
func declared(f *Field) map[string]Input {
	all := maps.Clone(f.Variables)
	if all == nil {
		all = map[string]Input{}
	}
	for _, m := range braced.FindAllStringSubmatch(f.Value, -1) {
		if _, ok := all[m[1]]; !ok {
			all[m[1]] = Input{Required: f.Required, Secret: f.Secret}
		}
	}
	return all
}

var notInVariable = regexp.MustCompile(`[^A-Za-z0-9]+`)

// variable returns the name of an environment variable for an input. The prefix keeps a stranger
// from naming a variable that has a secret of this machine.
func (t *translator) variable(name string) string {
	return "MCP_" + strings.ToUpper(strings.Trim(notInVariable.ReplaceAllString(t.upstream+"_"+name, "_"), "_"))
}

// extra adds the values that the user gives beyond the inputs of the registry.
func (t *translator) extra(to map[string]clients.Value, given map[string]string) {
	for name, text := range given {
		if _, known := lookUpFold(to, name); !known {
			to[name] = t.home.Typed(name, text)
		}
	}
}

// expand replaces the {variables} of a text. It leaves names that are not in variables as they are.
// It reports required variables without a value as missing.
func (t *translator) expand(text string, variables map[string]Input) clients.Value {
	return t.expandOr(text, variables, func(name string, in *Input) clients.Value {
		t.lack("--set "+prose.Flat(name)+"=VALUE", in)
		return clients.Literal("")
	})
}

var inBraces = regexp.MustCompile(`\{([^{}]*)\}`)

func (t *translator) expandOr(text string, variables map[string]Input,
	lacking func(string, *Input) clients.Value) clients.Value {
	var v clients.Value
	done := 0
	for _, m := range inBraces.FindAllStringSubmatchIndex(text, -1) {
		name := text[m[2]:m[3]]
		in, known := variables[name]
		if !known {
			continue
		}
		v = append(v, clients.Literal(text[done:m[0]])...)
		done = m[1]
		given := t.given.Values[name]
		t.used[name] = t.used[name] || len(given) > 0
		switch {
		case len(given) > 0:
			v = append(v, t.userValue(name, given[0], &in)...)
		case in.Value != "":
			v = append(v, clients.Literal(in.Value)...)
		case in.Default != "":
			v = append(v, clients.Literal(in.Default)...)
		default:
			v = append(v, lacking(name, &in)...)
		}
	}
	return append(v, clients.Literal(text[done:])...)
}

// userValue returns a value that the user has given.
func (t *translator) userValue(name, text string, in *Input) clients.Value {
	if len(in.Choices) > 0 && !slices.Contains(in.Choices, text) && !strings.Contains(text, "${") {
		var choices []string
		for _, c := range in.Choices {
			choices = append(choices, prose.Flat(c))
		}
		t.refuse("%s is one of %s", prose.Flat(name), strings.Join(choices, ", "))
	}
	if in.Format == "filepath" && !strings.Contains(text, "${") {
		if rest, ok := strings.CutPrefix(text, "~/"); ok {
			text = filepath.Join(t.home.Dir, rest)
		} else if path, err := filepath.Abs(text); err == nil {
			text = path
		}
	}
	v := t.home.Typed(name, text)
	if in.Secret && v.IsLiteral() {
		return clients.Secret(name, text)
	}
	return v
}

// lack records an input that the user has to give, by the flag for it.
func (t *translator) lack(flag string, in *Input) {
	need := flag
	if in.Description != "" {
		need += " (" + prose.Cut(prose.Flat(in.Description), 80) + ")"
	}
	if !slices.Contains(t.missing, need) {
		t.missing = append(t.missing, need)
	}
}

// unused refuses values that no input has.
func (t *translator) unused() {
	for _, key := range slices.Sorted(maps.Keys(t.given.Values)) {
		if !t.used[key] {
			t.refuse("the server has no input %s for --set", prose.Quote(key))
		}
	}
}

// lookUpFold finds a header and ignores the case of its name.
func lookUpFold[V any](m map[string]V, name string) (value V, ok bool) {
	for k, v := range m {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	return value, false
}
