package registry

import (
	"net/url"
	"slices"
	"strings"

	"junction/upstream/loopback"
)

// Server is the part of a server.json that Junction uses. Its texts are not trusted.
type Server struct {
	Name        string `json:"name"` // such as io.github.user/weather
	Title       string `json:"title"`
	Description string `json:"description"`
	Version     string `json:"version"`
	Status      string `json:"status"` // active, deprecated or deleted; "" is active
	Repository  struct {
		URL string `json:"url"`
	} `json:"repository"`
	Packages []Package `json:"packages"`
	Remotes  []Remote  `json:"remotes"`
}

// Package is a package that a local server comes in.
type Package struct {
	RegistryType string     `json:"registryType"` // npm, pypi, oci; others are not supported
	BaseURL      string     `json:"registryBaseUrl"`
	Identifier   string     `json:"identifier"`
	Version      string     `json:"version"`
	Transport    Remote     `json:"transport"`
	RuntimeArgs  []Argument `json:"runtimeArguments"` // of npx, uvx or docker
	PackageArgs  []Argument `json:"packageArguments"` // of the server
	Env          []Field    `json:"environmentVariables"`
}

// Remote is a server at a URL, or the transport of a Package.
type Remote struct {
	Type      string           `json:"type"` // streamable-http, sse, or stdio
	URL       string           `json:"url"`  // may have {variables}
	Headers   []Field          `json:"headers"`
	Variables map[string]Input `json:"variables"`
}

// Input is a value: fixed, or given by the user.
type Input struct {
	Description string           `json:"description"`
	Required    bool             `json:"isRequired"`
	Secret      bool             `json:"isSecret"`
	Format      string           `json:"format"` // filepath: a file of this machine
	Default     string           `json:"default"`
	Value       string           `json:"value"` // may have {variables}; fixed otherwise
	Choices     []string         `json:"choices"`
	Variables   map[string]Input `json:"variables"`
}

// Field is an environment variable or a header.
type Field struct {
	Name string `json:"name"`
	Input
}

// Argument is an argument of a command.
type Argument struct {
	Type     string `json:"type"`      // named or positional
	Name     string `json:"name"`      // of a named one, with its dashes
	Hint     string `json:"valueHint"` // names a positional one
	Repeated bool   `json:"isRepeated"`
	Input
}

// key returns the name under which the user gives the value.
func (a *Argument) key() string {
	if a.Type == "named" {
		return strings.TrimLeft(a.Name, "-")
	}
	return a.Hint
}

// Ways to run a server, in the order in which Junction prefers them: a remote one runs nothing
// here.
const (
	Remotely = "remote"
	NPM      = "npm"
	PyPI     = "pypi"
	OCI      = "oci"
)

// Ways returns the ways in which Junction can run the server.
func (s *Server) Ways() []string {
	var ways []string
	if s.remote() != nil {
		ways = append(ways, Remotely)
	}
	for _, way := range []string{NPM, PyPI, OCI} {
		if s.packageOf(way) != nil {
			ways = append(ways, way)
		}
	}
	return ways
}

// remoteTypes has the transports of servers with a URL in the order in which Junction prefers them, with
// their words of the configuration file; "" if the file needs none.
var remoteTypes = []struct{ word, transport string }{{"streamable-http", ""}, {"sse", "sse"}}

// transport returns the transport of the server for the configuration file.
func (r *Remote) transport() string {
	for _, row := range remoteTypes {
		if row.word == r.Type {
			return row.transport
		}
	}
	return ""
}

// remote returns the URL of the server that Junction uses, nil if there is none: Streamable HTTP
// first.
func (s *Server) remote() *Remote {
	for _, row := range remoteTypes {
		i := slices.IndexFunc(s.Remotes, func(r Remote) bool { return r.Type == row.word && secure(r.URL) })
		if i >= 0 {
			return &s.Remotes[i]
		}
	}
	return nil
}

// secure reports whether a URL is https, or http on this machine.
func secure(address string) bool {
	if strings.HasPrefix(address, "https://") {
		return true
	}
	u, err := url.Parse(inBraces.ReplaceAllString(address, "1")) // a variable may be the port, not the host
	return err == nil && u.Scheme == "http" && loopback.Host(u.Hostname())
}

// packageOf returns the package of a type that speaks MCP on stdio.
func (s *Server) packageOf(kind string) *Package {
	i := slices.IndexFunc(s.Packages, func(p Package) bool {
		return p.RegistryType == kind && (p.Transport.Type == "stdio" || p.Transport.Type == "")
	})
	if i < 0 {
		return nil
	}
	return &s.Packages[i]
}

// has reports whether each word is in the name, the title or the description.
func (s *Server) has(words []string) bool {
	text := strings.ToLower(s.Name + "\n" + s.Title + "\n" + s.Description)
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, strings.ToLower(w)) })
}
