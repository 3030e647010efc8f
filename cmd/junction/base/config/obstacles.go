package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"junction/cmd/junction/base/certificate"
)

// Obstacles returns why Junction does not start with the certificate and the audit of a file, each with the path
// of its key. Both lie outside of the file, so a mistake there is only a warning while Junction runs.
func (c *Config) Obstacles() (list []Problem) {
	add := func(path, format string, args ...any) {
		list = append(list, Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	if c.TLS.On() && c.TLS.CertFile != "" && c.TLS.KeyFile != "" && c.Host() != "" {
		if _, err := c.Pair().Load(time.Now()); err != nil {
			key, text := "tls", err.Error()
			if problem, is := errors.AsType[*certificate.Problem](err); is {
				key, text = "tls."+problem.Key, problem.Text
			}
			add(key, "%s; Junction does not start with it", text)
		}
	}
	if file := c.Audit.File; file != "" && file != AuditStderr {
		if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
			add("audit.file", "there is no folder %s; make it, since Junction does not start without it",
				filepath.Dir(file))
		} else if unwritable(file) {
			add("audit.file", "the user of this command cannot write %s, and Junction does not start as this user; "+
				"name a file in a folder that the user of Junction can write, such as "+
				"/var/log/junction/audit.jsonl", file)
		}
	}
	return list
}
