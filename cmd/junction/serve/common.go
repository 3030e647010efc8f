package serve

import (
	"io"
	"log/slog"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/desk/screen"
)

// options are the inputs of a program: the command line and the standard streams of the process.
type options struct {
	file, listen   string
	stdout, stderr io.Writer
	getenv         func(string) (string, bool)
	lastGood       bool // a mistake in the file does not prevent the start, see own.go
	inner          bool // it serves this process alone, see own.go
	// why the content of the file is not served; nil if it was not tried. The last good content is
	// served.
	unserved error
	served   func() // if it is not nil, called when the process serves, and is recorded
}

// common is what all parts have in common: the options, and the log and the first screen on the
// streams of them.
type common struct {
	options
	screen *screen.Screen
	log    *slog.Logger // nil until the terminal is open
}

// newCommon returns a common whose stderr keeps the log apart from the first screen.
func newCommon(o options) *common {
	first := screen.New(o.stdout, o.stderr)
	o.stderr = first.Log()
	return &common{options: o, screen: first}
}

// terminal is the part that opens and closes the log and the first screen.
type terminal struct {
	*common
	steady
}

// Open makes the log.
func (t terminal) Open(c *config.Config) error {
	t.screen.Hold()
	t.log = record.NewLog(t.stderr, c.Log)
	return nil
}

// Close writes what is left of the log.
func (t terminal) Close() {
	if t.log != nil {
		record.FlushLog(t.log)
	}
	t.screen.Release()
}
