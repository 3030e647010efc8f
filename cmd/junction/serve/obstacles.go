package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/admin"
	"junction/cmd/junction/ops/signins"
)

// This file has the list of what Junction needs beside its file to start. Each row repeats what the part of its key
// does first in Open, and changes nothing. junction check and the start of a service read the list.

// needs are the rows: the key, and why Junction cannot start with the value of it.
var needs = []struct {
	key string
	why func(c *config.Config, o options) error
}{
	{"outbound.ca_file", func(c *config.Config, _ options) error {
		_, err := c.Outbound.Fetcher()
		return err
	}},
	{"pins", func(c *config.Config, o options) error {
		return (&pinned{common: &common{options: o}}).Open(c)
	}},
	{"sessions.key_file", func(c *config.Config, _ options) error {
		text, err := os.ReadFile(c.Sessions.KeyFile)
		if c.Sessions.KeyFile == "" || errors.Is(err, fs.ErrNotExist) { // the start makes the file
			return nil
		}
		if err == nil {
			_, err = parseKeys(c.Sessions.KeyFile, string(text))
		}
		return err
	}},
	{"storage.key_file", func(c *config.Config, o options) error {
		if !c.Stores() {
			return nil
		}
		return signins.CheckStorage(c.Storage, o.getenv)
	}},
	{"storage.dsn", func(c *config.Config, _ options) error {
		if !c.Stores() || c.Storage.Driver == store.Postgres || c.Storage.DSN == "" {
			return nil
		}
		if info, err := os.Stat(filepath.Dir(c.Storage.DSN)); err != nil || !info.IsDir() {
			return fmt.Errorf("there is no folder %s; make it, since Junction does not start without it",
				filepath.Dir(c.Storage.DSN))
		}
		return nil
	}},
	{"tls.acme", func(c *config.Config, o options) error {
		if c.TLS.ACME == nil || config.OrderedDir(c, o.getenv) != "" {
			return nil
		}
		return errNoCertificates
	}},
}

// Foresight returns what junction check needs of this package. It reads the environment of this process.
func Foresight() admin.Foresight {
	return admin.Foresight{Obstacles: func(c *config.Config, file string) []config.Problem {
		return obstacles(c, options{file: file, getenv: os.LookupEnv})
	}, Revived: revived}
}

// obstacles returns what prevents a start with a configuration, each with the path of its key.
func obstacles(c *config.Config, o options) []config.Problem {
	list := c.Obstacles()
	for _, n := range needs {
		if err := n.why(c, o); err != nil {
			list = append(list, config.Problem{Path: n.key, Text: strings.TrimPrefix(err.Error(), n.key+": ")})
		}
	}
	return list
}
