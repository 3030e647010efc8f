package stdio

import (
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
)

// places lists variables that every command gets, as globs: where the session of a user and its shell are.
var places = []string{
	// The safe list of MCP's own SDKs, and where a shell is.
	"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "PWD",
	// Language, time zone, places for files.
	"LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*",
	// Node finds its modules and its options, such as the limit of memory. The terminal of an editor sets them for
	// its debugger.
	"NODE_PATH", "NODE_OPTIONS",
}

// settings lists the other ones: how programs reach the network, and where they keep what they fetch. Package
// service reads the list by Setting.
var settings = []string{
	// A server behind a proxy or a private CA reaches nothing without these.
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT",
	// Node. Those of npm are in npmSettings.
	"NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY", "COREPACK_HOME",
	// The shims of version managers in PATH find the real program by these.
	"NVM_*", "VOLTA_HOME", "FNM_*", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "PYENV_ROOT", "PNPM_HOME",
	"BUN_INSTALL",
	// uv and pip: caches, installed programs, and how to fetch. UV_PUBLISH_*, and
	// UV_INDEX_<NAME>_PASSWORD are secrets.
	"UV_CACHE_DIR", "UV_NO_CACHE", "UV_OFFLINE", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_PYTHON", "UV_PYTHON_INSTALL_DIR",
	"UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_PREFERENCE", "UV_PYTHON_DOWNLOADS", "UV_LINK_MODE", "UV_NATIVE_TLS",
	"UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT", "PIP_CACHE_DIR",
}

// addresses lists more such variables, with URLs of registries. Values with a password are not
// passed.
var addresses = []string{"UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL",
	"PIP_EXTRA_INDEX_URL"}

// inheritedWindows lists the variables of MCP's SDKs, and those that npx.cmd needs. Case is
// ignored.
var inheritedWindows = []string{
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES",
	"PROGRAMFILES(X86)",
	"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "COMSPEC", "WINDIR", "PROGRAMDATA",
}

// npmSettings lists the npm settings that a command gets, without npm_config_: caches, registry, files of settings.
// Not _auth, _password, and tokens of registries. Case is ignored.
var npmSettings = []string{
	"cache", "registry", "prefix", "userconfig", "globalconfig", "offline", "prefer_offline", "prefer_online", "cafile",
	"proxy", "https_proxy", "noproxy", "strict_ssl", "update_notifier", "loglevel", "fetch_timeout", "fetch_retries",
}

// Setting reports whether a variable has a setting of the user's programs, and no secret: a proxy, a certificate,
// a registry, a cache. Each command gets it, and a service of the user has it from the shell that installs it.
func Setting(name, value string) bool {
	if setting, ok := strings.CutPrefix(strings.ToLower(name), "npm_config_"); ok {
		return slices.Contains(npmSettings, setting) && !strings.Contains(value, "@")
	}
	return Matches(settings, name) || slices.Contains(addresses, name) && !strings.Contains(value, "@")
}

// byDefault reports whether every command gets the variable.
func byDefault(name, value string) bool {
	if runtime.GOOS == "windows" {
		upper := strings.ToUpper(name)
		if slices.Contains(inheritedWindows, upper) || upper == "PATH" {
			return true
		}
	}
	return Matches(places, name) || Setting(name, value)
}

// Environment selects the variables that a command gets.
type Environment struct {
	// added to the inherited variables; its PATH is also used to find the program
	Own map[string]string
	// further inherited variables of Junction: names, globs such as AWS_*, or the word all
	Inherit []string
	// variables that are passed only if Inherit has their exact names
	Reserved []string
}

// Passes reports whether the command gets a variable of Junction's environment. Junction's own
// variables, and those in Reserved, pass only by their exact names.
func (e Environment) Passes(name, value string) bool {
	switch {
	case slices.Contains(e.Inherit, name):
		return true
	case strings.HasPrefix(name, "JUNCTION_"),
		strings.HasPrefix(name, "OTEL_EXPORTER_") && strings.HasSuffix(name, "HEADERS"): // they contain keys
		return false
	case strings.HasPrefix(value, "()"): // a function of bash, as in MCP's SDKs
		return false
	case byDefault(name, value):
		return true
	}
	return Matches(e.Inherit, name) && !slices.Contains(e.Reserved, name)
}

// Matches reports whether the list contains the variable, by its name or by a glob.
func Matches(globs []string, variable string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, _ := path.Match(glob, variable)
		return ok || glob == "all"
	})
}

// variables returns the environment of the command; ours is Junction's environment.
func (e Environment) variables(ours []string) []string {
	theirs := []string{} // not nil, because nil would mean all of Junction's
	for _, variable := range ours {
		if name, value, ok := strings.Cut(variable, "="); ok && e.Passes(name, value) {
			theirs = append(theirs, variable)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Own)) {
		theirs = append(theirs, name+"="+e.Own[name])
	}
	return theirs
}
