package config

import (
	"os"
	"regexp"
	"slices"
)

// LoadPlaces is LoadForCommand for a command that looks for the running junction: a process goes on with what it
// serves when its file gets a mistake. With the error about mistakes, the Config has the readable part of the
// file. Where a place cannot be read, such as admin, it has the default. It is nil if the file cannot be read.
func LoadPlaces(file string) (*Config, error) {
	c, err := LoadForCommand(file)
	if err == nil {
		return c, nil
	}
	text, unread := readFile(file)
	if unread != nil {
		return nil, err
	}
	c, d := parse(file, text, os.LookupEnv, nil)
	whole := slices.ContainsFunc(d.Problems, func(p Problem) bool { return p.Path == "" })
	if whole { // the text is no mapping of YAML: a line of its own can be read
		c = defaultConfig()
	}
	for key, value := range map[string]*string{"listen": &c.Listen, "admin": c.Admin} {
		_, mistaken := d.wrong[key]
		switch line, found := lineOf(text, key); {
		case whole && found:
			*value = line
		case mistaken && key == "listen":
			*value = defaultConfig().Listen
		case mistaken:
			*value = DefaultAdmin
		}
	}
	return c, err
}

// placeLine is a line of a file with an address as the value of a key.
var placeLine = regexp.MustCompile(`(?m)^(listen|admin):[ ]+["']?([0-9A-Za-z_.:\[\]-]+)["']?[ ]*(?:#.*)?\r?$`)

// lineOf returns the address in the line of a key at the top level.
func lineOf(text []byte, key string) (value string, found bool) {
	for _, m := range placeLine.FindAllSubmatch(text, -1) {
		if string(m[1]) == key {
			return string(m[2]), true
		}
	}
	return "", false
}
