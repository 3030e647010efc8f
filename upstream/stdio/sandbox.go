package stdio

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/upstream/sandbox"
)

// Confinement is the sandbox of the processes of one command.
type Confinement struct {
	Name          string // the upstream's name
	sandbox.Rules        // of the entry; each process has more
	// the command does not start if the kernel cannot enforce all of this
	Require bool
	Support sandbox.Support // of the kernel
	// the command's own folder; if "", it keeps no files beyond the process
	Private string
	// Others returns the paths that other confined commands may change; nil if there are none
	Others func() []string
}

// SandboxError means that a command was not started, because its sandbox could not be set up.
type SandboxError struct {
	Reason    string
	Permanent bool // another attempt cannot succeed
}

func (e *SandboxError) Error() string { return e.Reason }

// cell is the sandbox of one process. A nil cell has no restrictions.
type cell struct {
	*Confinement
	rules    sandbox.Rules // of the entry, with what all commands may change
	temp     string        // for temporary files of this process; removed at its end
	folder   string        // Private, or temp
	handover *sandbox.Handover
}

// open creates the folders for another process. It returns nil for a nil Confinement.
func (c *Confinement) open() (_ *cell, err error) {
	if c == nil {
		return nil, nil
	}
	if missing := c.Support.Missing(&c.Rules); missing != "" && c.Require {
		return nil, &SandboxError{"not started without its whole sandbox (sandbox.require): " + missing, true}
	}
	x := &cell{Confinement: c, folder: c.Private, rules: c.Rules}
	if c.Support.Enforces() {
		if x.rules.Writable, err = c.writable(); err != nil {
			return nil, &SandboxError{"sandbox.write: " + err.Error(), false}
		}
	}
	for _, list := range []struct {
		key   string
		paths []string
	}{{"read", c.Read}, {"write", c.Write}} {
		for _, p := range list.paths {
			if problem := c.Support.PathProblem(&x.rules, list.key, p); problem != "" {
				return nil, &SandboxError{"sandbox." + list.key + ": " + problem, false}
			}
		}
	}
	if x.folder != "" {
		if err := os.MkdirAll(x.folder, 0o700); err != nil {
			return nil, fmt.Errorf("make the private folder of the sandbox: %w; let the user of Junction write there",
				err)
		}
	}
	if x.temp, err = os.MkdirTemp("", "junction-"+c.Name+"-"); err != nil {
		return nil, fmt.Errorf("make the temporary folder of the sandbox: %w", err)
	}
	if x.folder == "" {
		x.folder = x.temp
	}
	return x, nil
}

// writable returns what this command and all others may change, without temporary folders.
func (c *Confinement) writable() (sandbox.Writable, error) {
	paths := slices.Clone(c.Write)
	if c.Private != "" {
		paths = append(paths, c.Private)
	}
	if c.Others != nil {
		paths = append(paths, c.Others()...)
	}
	return sandbox.NewWritable(paths)
}

// enter returns the options with the folders of the cell: the working directory, if the entry has
// none, and the variables. A relative program path then still refers to Junction's working
// directory.
func (x *cell) enter(o Options) (Options, error) {
	if x == nil {
		return o, nil
	}
	o.private = x.variables()
	if o.Dir != "" || o.Folder.starts() {
		return o, nil
	}
	o.Dir = x.folder
	if name := o.Command[0]; filepath.Base(name) != name && !filepath.IsAbs(name) {
		path, err := filepath.Abs(name)
		if err != nil {
			return o, err
		}
		o.program = path
	}
	return o, nil
}

// variables returns the variables that move caches and temporary files into folders of the cell.
// With the caches in the home folder, one command could change the programs of another. uvx keeps a
// lock in UV_TOOL_DIR.
func (x *cell) variables() map[string]string {
	cache := filepath.Join(x.folder, ".cache")
	return map[string]string{
		"TMPDIR": x.temp, "XDG_CACHE_HOME": cache, "npm_config_cache": filepath.Join(cache, "npm"),
		"UV_CACHE_DIR": filepath.Join(cache, "uv"), "UV_TOOL_DIR": filepath.Join(cache, "uv-tools"),
		// Their defaults are below XDG_CACHE_HOME.
		"PIP_CACHE_DIR": "", "COREPACK_HOME": "",
	}
}

// exchange replaces variables of an environment by private ones. Names are compared without regard
// to case, because npm reads them so. An empty private value only removes. Variables in own are
// only removed, because they are added later.
func exchange(environment []string, private, own map[string]string) []string {
	if len(private) == 0 {
		return environment
	}
	is := func(name string) func(string) bool {
		return func(other string) bool { return strings.EqualFold(name, other) }
	}
	names := slices.Sorted(maps.Keys(private))
	kept := slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(names, is(name))
	})
	for _, name := range names {
		if value := private[name]; value != "" && !slices.ContainsFunc(slices.Collect(maps.Keys(own)), is(name)) {
			kept = append(kept, name+"="+value)
		}
	}
	return kept
}

// wrap makes cmd start in the cell. cmd must be complete. dir is the working directory of the
// entry, and open the open folders of a client.
func (x *cell) wrap(cmd *exec.Cmd, dir string, folder *Folder, open []*os.File) (err error) {
	if x == nil || !x.Support.Enforces() {
		return nil
	}
	program := cmd.Path
	if !filepath.IsAbs(program) {
		program = filepath.Join(cmd.Dir, program)
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	r := x.rules
	changed := append(slices.Clone(r.Writable), x.temp)
	granted := folder.paths()
	if folder != nil && !folder.ReadOnly {
		changed = append(changed, granted...)
	}
	if r.Writable, err = sandbox.NewWritable(changed); err != nil {
		return &SandboxError{"sandbox.write: " + err.Error(), false}
	}
	r.Write = append(slices.Clone(r.Write), x.temp, x.folder)
	if err := x.mustPermit(&r, granted, "the program", program); err != nil {
		return err
	}
	r.Devices = sandbox.Devices()
	r.Default = append(sandbox.System(), sandbox.Programs(program, cmd.Env, r.Writable)...)
	if dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if !sandbox.TooWide(dir, cmd.Env) {
			if err := x.mustPermit(&r, granted, "dir", dir); err != nil {
				return err
			}
			r.Default = append(r.Default, dir)
		}
	}
	r.Default = slices.DeleteFunc(r.Default, func(p string) bool { return r.Writable.Holds(p) != "" })
	if x.handover, err = sandbox.Wrap(cmd, r, x.Support); err == nil && folder != nil {
		x.handover.Grant(cmd, sandbox.Granted{Start: folder.Start, Write: !folder.ReadOnly}, open...)
	}
	return err
}

// mustPermit returns an error if a path that the command needs is not readable by default, because
// another command may change it, and the entry does not name it. granted are paths that it may use, too.
func (x *cell) mustPermit(r *sandbox.Rules, granted []string, what, path string) error {
	in := r.Writable.Holds(path)
	if in == "" || r.Writable.Permits(slices.Concat(r.Read, r.Write, granted), path) {
		return nil
	}
	return &SandboxError{fmt.Sprintf("%s %s is in %s, which confined commands may change, so it is not readable by "+
		"default; add it to sandbox: { read: [%s] }", what, path, in, path), false}
}

// started must be called when the process runs. It returns when the command runs.
func (x *cell) started() error {
	if x == nil || x.handover == nil {
		return nil
	}
	defer x.handover.Close()
	return x.handover.Started()
}

// removal is how long close waits for the removal of temporary files.
const removal = 2 * time.Second

// close releases the resources of the cell. All its processes must have ended.
func (x *cell) close() {
	if x == nil {
		return
	}
	if x.handover != nil {
		x.handover.Close()
	}
	removed := make(chan struct{})
	go func() { // ends when the folder is removed, which takes time for many files
		defer close(removed)
		os.RemoveAll(x.temp)
	}()
	await(removed, removal)
}
