package upstream

import (
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"

	"junction/upstream/command"
	"junction/upstream/sandbox"
)

// This file has what of an entry is shown to the operator.

// LogValue shows where the upstream is and hides what may be secret: the environment, the headers
// and the query of the URL.
func (c Config) LogValue() slog.Value {
	if len(c.Command) > 0 {
		return slog.StringValue(c.Command[0])
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return slog.StringValue("url")
	}
	return slog.StringValue(u.Scheme + "://" + u.Host + u.Path)
}

// Withheld returns the names of the variables in Junction's environment that look like keys, and that
// a command of the entry does not get although servers often need them. It does not return the
// variables of Junction itself.
func (c *Config) Withheld() []string {
	if len(c.Command) == 0 {
		return nil
	}
	return command.Withheld(c.environment())
}

// Unconfined returns which part of the entry's sandbox the kernel does not enforce, and what to do;
// "" if it enforces all, or if the entry has no sandbox.
func (c *Config) Unconfined() string {
	if c.Sandbox == nil {
		return ""
	}
	return c.Sandbox.Missing(sandbox.Kernel())
}

// Absent returns the paths of the entry's sandbox that do not exist or cannot be used on this
// kernel, by the keys in the section, such as write[0], each with what to do.
func (c *Config) Absent() map[string]string {
	if c.Sandbox == nil {
		return nil
	}
	return c.Sandbox.Absent(sandbox.Kernel())
}

// WideDir returns the working directory of the entry if its sandbox does not make it readable
// because it contains the home folder.
func (c *Config) WideDir() string {
	if c.Sandbox == nil || c.Dir == "" || !sandbox.TooWide(c.Dir, []string{"HOME=" + c.Env["HOME"]}) ||
		sandbox.Covers(append(slices.Clone(c.Sandbox.Read), c.Sandbox.Write...), filepath.Clean(c.Dir)) {
		return ""
	}
	return c.Dir
}
