package upstream

import (
	"cmp"
	"fmt"
	"time"

	"junction/upstream/yamlread"
)

// Exec is the section exec of an upstream: how the programs run that print its secrets. The reader of the file runs
// them, and puts what they print in the place of the reference.
type Exec struct {
	// The programs run again after this time, from 1m to 24h. A secret that has changed starts a new
	// connection. Default 15m.
	//
	// They also run at the start, and when the server answers 401, at most once a minute.
	Every time.Duration `yaml:"every" json:",omitempty" example:"5m" change:"call,waits"`
	// Variables of Junction that the programs get: exact names. Beside these, they get HOME, PATH,
	// language, proxy and certificate settings.
	InheritEnv []string `yaml:"inherit_env" json:",omitempty" example:"[OP_SERVICE_ACCOUNT_TOKEN]" change:"call,waits"`
}

const (
	defaultEvery = 15 * time.Minute
	leastEvery   = time.Minute
	mostEvery    = 24 * time.Hour
)

// Interval returns the time after which the programs run again.
func (e *Exec) Interval() time.Duration { return cmp.Or(e.Every, defaultEvery) }

// validate reports mistakes in the section.
func (e *Exec) validate(bad func(path, format string, args ...any)) {
	if e.Every != 0 && (e.Every < leastEvery || e.Every > mostEvery) {
		bad("exec.every", "must be between 1m and 24h; Junction also runs the programs when the server answers 401")
	}
	for i, name := range e.InheritEnv {
		if !yamlread.IsVariable(name) {
			bad(fmt.Sprintf("exec.inherit_env[%d]", i), "is no name of a variable; write exact names, such as "+
				"VAULT_ADDR, because a program that prints secrets gets only what is named")
		}
	}
}
