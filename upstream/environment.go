package upstream

import (
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Inherit are the variables of our own environment that a command gets besides the default ones:
// names, and globs such as AWS_*. The word all stands for all variables.
type Inherit []string

// Shape returns what the node is to be read into: the word all, or a list.
func (i *Inherit) Shape(n *yaml.Node) (into any, want string) {
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		return (*[]string)(i), ""
	case n.Kind == yaml.ScalarNode && n.Value == "all":
		*i = Inherit{"all"}
		return &(*i)[0], ""
	}
	return nil, "the word all, or a list of variables such as [DOCKER_HOST, AWS_*]"
}

// validate reports the names that are none.
func (i Inherit) validate(bad func(path, format string, args ...any)) {
	for k, name := range i {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "=/$ ") {
			bad(fmt.Sprintf("inherit_env[%d]", k), "is no name of a variable; write a name such as DOCKER_HOST, or a glob such as AWS_*")
		}
	}
}

// names reports whether a variable is in the list by its exact name.
func (i Inherit) names(variable string) bool { return slices.Contains(i, variable) }

// Matches reports whether the list has the variable, by its name or by a glob.
func (i Inherit) Matches(variable string) bool {
	return slices.ContainsFunc(i, func(glob string) bool {
		ok, _ := path.Match(glob, variable)
		return ok || glob == "all"
	})
}

// inherited are the variables that every command gets, as globs. They hold places and settings.
var inherited = []string{
	// The safe list of MCP's own SDKs, and where a shell is.
	"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "PWD",
	// Language, time zone, places for files.
	"LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*",
	// A server behind a proxy or a private CA reaches nothing without these.
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT",
	// npm, by npmName: caches, registry, files of settings. Not _auth, _password, and tokens of
	// registries. Node finds its modules and its options, such as the limit of memory. Both hold no
	// secret.
	"NODE_PATH", "NODE_OPTIONS", "NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY", "COREPACK_HOME",
	// The shims of version managers in PATH find the real program by these.
	"NVM_*", "VOLTA_HOME", "FNM_*", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "PYENV_ROOT", "PNPM_HOME", "BUN_INSTALL",
	// uv and pip: caches, installed programs, and how to fetch. UV_PUBLISH_*, and
	// UV_INDEX_<NAME>_PASSWORD are secrets.
	"UV_CACHE_DIR", "UV_NO_CACHE", "UV_OFFLINE", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_PYTHON", "UV_PYTHON_INSTALL_DIR",
	"UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_PREFERENCE", "UV_PYTHON_DOWNLOADS", "UV_LINK_MODE", "UV_NATIVE_TLS",
	"UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT", "PIP_CACHE_DIR",
}

// addresses are further ones, with URLs of registries. A value with a password is not passed on.
var addresses = []string{"UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"}

// inheritedWindows are those of MCP's SDKs, and what npx.cmd needs. Case does not matter.
var inheritedWindows = []string{
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "PROGRAMFILES(X86)",
	"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "COMSPEC", "WINDIR", "PROGRAMDATA",
}

// npmSettings are the settings of npm that a command gets, without npm_config_. Case does not
// matter.
var npmSettings = []string{
	"cache", "registry", "prefix", "userconfig", "globalconfig", "offline", "prefer_offline", "prefer_online", "cafile",
	"proxy", "https_proxy", "noproxy", "strict_ssl", "update_notifier", "loglevel", "fetch_timeout", "fetch_retries",
}

// byDefault reports whether every command gets the variable.
func byDefault(name, value string) bool {
	if setting, ok := strings.CutPrefix(strings.ToLower(name), "npm_config_"); ok {
		return slices.Contains(npmSettings, setting) && !strings.Contains(value, "@")
	}
	if runtime.GOOS == "windows" {
		upper := strings.ToUpper(name)
		if slices.Contains(inheritedWindows, upper) || upper == "PATH" {
			return true
		}
	}
	return Inherit(inherited).Matches(name) || slices.Contains(addresses, name) && !strings.Contains(value, "@")
}

// passes reports whether a command of the entry gets a variable of our own environment. Junction's
// own variables, and those that the file uses elsewhere, pass by their exact names only.
func (c *Config) passes(name, value string) bool {
	switch {
	case c.InheritEnv.names(name):
		return true
	case strings.HasPrefix(name, "JUNCTION_"):
		return false
	case strings.HasPrefix(value, "()"): // a function of bash, as in MCP's SDKs
		return false
	case byDefault(name, value):
		return true
	}
	return c.InheritEnv.Matches(name) && !slices.Contains(c.Reserved, name)
}

// environment returns the environment of a command of the entry, made from ours.
func (c *Config) environment(ours []string) []string {
	theirs := []string{} // not nil, which would be all of ours
	for _, variable := range ours {
		if name, value, ok := strings.Cut(variable, "="); ok && c.passes(name, value) {
			theirs = append(theirs, variable)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		theirs = append(theirs, name+"="+c.Env[name])
	}
	return theirs
}

// Withheld returns the names of the variables of our environment that a command of the entry does
// not get, and that servers often need: those that look like keys. Junction's own are not among
// them.
func (c *Config) Withheld() []string {
	if len(c.Command) == 0 {
		return nil
	}
	var names []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		_, given := c.Env[name]
		if !given && !strings.HasPrefix(name, "JUNCTION_") && looksSecret(name) && !c.passes(name, value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// looksSecret reports whether servers take a key from a variable of the name, most likely.
func looksSecret(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"API_KEY", "APIKEY", "TOKEN", "SECRET"}, func(part string) bool { return strings.Contains(name, part) })
}
