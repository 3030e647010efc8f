// Package command runs the commands of tools. There is no shell unless the manifest has shell:
// true, and then values are its positional parameters, never part of the script.
//
// arguments.go makes the words of a command from the arguments of a call and refuses values that
// could become options, or leave a folder. output.go reads the file that a command writes.
package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"junction/cmd/pack/manifest"
	"junction/upstream/sandbox"
	"junction/upstream/stdio"
)

// Runner runs the commands of a pack. The zero value is ready to use, and safe for concurrent use.
type Runner struct {
	Log *slog.Logger // nil discards
	// Writable are the paths that confined commands outside of the pack may change.
	Writable []string

	watchdog stdio.Watchdog
	writable atomic.Pointer[[]string] // see Confine; nil before its first call
}

// Confine tells the runner the sandboxes of all tools of a pack: no link that one of them, or a
// command outside of the pack, can make decides what another one may use. The sandboxes of earlier
// calls count, too: commands of the manifest before may still run. One goroutine at a time calls it.
func (r *Runner) Confine(tools []*manifest.Tool) {
	paths := slices.Clone(r.others())
	for _, t := range tools {
		if t.Sandbox != nil {
			paths = append(paths, t.Sandbox.Write...)
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	r.writable.Store(&paths)
}

// others returns the paths that confined commands may change.
func (r *Runner) others() []string {
	if paths := r.writable.Load(); paths != nil {
		return *paths
	}
	return r.Writable
}

// grace is the time between SIGTERM and SIGKILL, twice.
const grace = time.Second

// Run runs the command of a tool with checked arguments, and returns its standard output, or the
// content of the file {{output}}. cut means that the output was longer, and is only the beginning.
// The end of ctx ends the command with all of its group. Errors are for the model: they have neither
// variables of the environment nor values of references.
func (r *Runner) Run(ctx context.Context, t *manifest.Tool, arguments map[string]any) (
	output []byte, cut bool, err error) {
	given, err := values(t, arguments)
	if err != nil {
		return nil, false, err
	}
	out, err := newOutput(t, given)
	if err != nil {
		return nil, false, fmt.Errorf("cannot make a folder for the output of %s: %v", t.Name, err)
	}
	defer out.remove()
	o, err := r.options(t, given, out)
	if err != nil {
		return nil, false, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, t.Timeout, errTimeout)
	defer cancel()
	result, err := stdio.Run(limited, o, []byte(t.Stdin.Text(given, nil)), int(t.MaxOutput))
	switch {
	case errors.Is(err, errTimeout):
		return nil, false, fmt.Errorf("%s did not end within its timeout of %v and was ended%s", t.Name, t.Timeout,
			outputOf(result))
	case err != nil && ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case err != nil:
		return nil, false, fmt.Errorf("cannot run %s: %v", t.Name, err)
	case result.Exceeded && t.CutsOutput() && out == nil:
		return result.Output, true, nil // it was ended, so that its exit status means nothing
	case result.Exceeded:
		return nil, false, fmt.Errorf("%s wrote more than its limit of %d bytes (max_output) and was ended; "+
			"ask for less at once", t.Name, t.MaxOutput)
	}
	if err := exit(t, result); err != nil {
		return nil, false, err
	}
	if out != nil {
		return out.read(t)
	}
	return result.Output, false, nil
}

var errTimeout = errors.New("timeout")

// exit returns an error for an exit status that means failure.
func exit(t *manifest.Tool, r *stdio.Result) error {
	meaning, mapped := t.ExitCodes[r.Code]
	switch {
	case meaning == manifest.ExitOK, r.Code == 0 && !mapped:
		return nil
	case mapped:
		return fmt.Errorf("%s%s", meaning, outputOf(r))
	}
	text := fmt.Sprintf("%s %s%s", t.Name, r.How, outputOf(r))
	if shown := tail(r.Output); shown != "" {
		text += "\noutput:\n" + shown
	}
	return errors.New(text)
}

// outputOf returns the last part of standard error, for an error.
func outputOf(r *stdio.Result) string {
	if r == nil || r.Stderr == "" {
		return ""
	}
	return "\nstderr:\n" + r.Stderr
}

// tail returns the last part of an output as text, to be shown beside an error.
func tail(b []byte) string {
	const shown = 1 << 10
	return strings.TrimSpace(strings.ToValidUTF8(string(b[max(0, len(b)-shown):]), "\uFFFD"))
}

// options returns the options for starting the command.
func (r *Runner) options(t *manifest.Tool, given map[string]any, out *output) (stdio.Options, error) {
	argv, err := words(t, given)
	if err != nil {
		return stdio.Options{}, err
	}
	if program := argv[0]; filepath.Base(program) != program && !filepath.IsAbs(program) {
		argv[0] = filepath.Join(t.WorkDir, program)
	}
	env := map[string]string{}
	for name, value := range t.Env {
		if value.Missing(given) == "" {
			env[name] = value.Text(given, nil)
		}
	}
	o := stdio.Options{
		Command: argv, Env: stdio.Environment{Own: env, Inherit: t.InheritEnv}, Dir: t.WorkDir,
		StopGrace: grace, Watchdog: &r.watchdog, Log: r.Log,
	}
	if t.Sandbox != nil {
		o.Confine = t.Sandbox.Confinement("pack", "", sandbox.Kernel(), r.others)
		if out != nil {
			o.Confine.Write = append([]string{out.dir}, o.Confine.Write...)
		}
	}
	return o, nil
}
