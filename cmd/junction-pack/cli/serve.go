package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"junction/cmd/junction-pack/serve"
	"junction/cmd/pack"
	"junction/cmd/pack/lock"
	"junction/cmd/pack/manifest"
	"junction/cmd/pack/skill"
	"junction/cmd/pack/tree"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
)

// ServeOptions configure Serve.
type ServeOptions struct {
	Address        string   // for HTTP; "" serves on stdio
	Enable         []string // globs of tools that are served although they are turned off
	Checksum       string   // that the folder must have, see package tree; "" accepts any
	Priorities     bool     // lines of the log begin with their priority, as in sd-daemon(3)
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// log returns the log.
func (o *ServeOptions) log() *slog.Logger {
	if !o.Priorities {
		return slog.New(slog.NewTextHandler(o.Stderr, nil))
	}
	return slog.New(&priorities{w: o.Stderr, mu: &sync.Mutex{}})
}

// priorities writes each record as a line that begins with its priority. Its message is written as it
// is, because Junction shows the line to people. The reader adds the time.
type priorities struct {
	mu    *sync.Mutex
	w     io.Writer // guarded by mu
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (*priorities) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (p *priorities) Handle(_ context.Context, r slog.Record) error {
	var b bytes.Buffer
	priority := "<6>"
	switch {
	case r.Level >= slog.LevelError:
		priority = "<3>"
	case r.Level >= slog.LevelWarn:
		priority = "<4>"
	}
	b.WriteString(priority + prose.OneLine(r.Message))
	write := func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%s", a.Key, prose.OneLine(a.Value.String()))
		return true
	}
	for _, a := range p.attrs {
		write(a)
	}
	r.Attrs(write)
	b.WriteByte('\n')
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(b.Bytes())
	return err
}

// WithAttrs implements slog.Handler.
func (p *priorities) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &priorities{mu: p.mu, w: p.w, attrs: slices.Concat(p.attrs, attrs)}
}

// WithGroup implements slog.Handler. No record of this program has groups.
func (p *priorities) WithGroup(string) slog.Handler { return p }

// Serve serves the pack at path until ctx is done. A changed file is read again.
func Serve(ctx context.Context, path string, o ServeOptions) error {
	log := o.log()
	s := &serving{path: path, checksum: o.Checksum, enable: o.Enable, log: log, runners: pack.NewRunners(log)}
	writable, err := sandbox.Listen(os.Getenv(sandbox.Told))
	if err != nil {
		return err
	}
	s.runners.Command.Writable = writable
	p, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.server = serve.NewServer(p, log)
	s.warn(p)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { serve.Watch(ctx, path, s.watched, func() { s.reload(ctx) }, log) })
	if o.Address == "" {
		return s.server.ServeStdio(ctx, o.Stdin, o.Stdout)
	}
	l, err := serve.Listen(o.Address)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Stdout, "serving http://%s%s\n", l.Addr(), serve.Path)
	return s.server.ServeHTTP(ctx, l)
}

// serving is a pack that is served. load and reload are called by one goroutine at a time.
type serving struct {
	path     string
	checksum string // that the folder must have; "" accepts any
	enable   []string
	log      *slog.Logger
	runners  pack.Runners
	server   *serve.Server
	text     []byte // of all files, when they were last read
	named    atomic.Pointer[[]string]
	skills   atomic.Pointer[skill.Folder]
}

// load reads the manifests.
func (s *serving) load(ctx context.Context) (*pack.Pack, error) {
	if s.checksum != "" {
		if sum, err := tree.Sum(s.path); err != nil {
			return nil, err
		} else if err := lock.Mismatch(sum, s.checksum, ""); err != nil {
			return nil, fmt.Errorf("%s %w", s.path, err)
		}
	}
	before, known := s.content(), len(s.files())
	p, err := made(ctx, s.path, manifest.Options{Enable: s.enable}, s.runners)
	if err != nil {
		return nil, err
	}
	if s.checksum != "" {
		p.Skills.Freeze()
	}
	s.named.Store(&p.Files)
	skills := s.skills.Swap(p.Skills)
	if s.text = before; len(s.files()) != known || (skills == nil) != (p.Skills == nil) { // also the first time
		s.text = s.content()
	}
	return p, nil
}

// warn logs the warnings. They come after all other lines about the pack, because Junction shows the
// problems since the last line with another priority.
func (s *serving) warn(p *pack.Pack) {
	for _, w := range p.Warnings {
		s.log.Warn(w.String())
	}
}

// reload replaces the pack if its files have changed.
func (s *serving) reload(ctx context.Context) {
	now := s.content()
	if bytes.Equal(now, s.text) {
		return
	}
	p, err := s.load(ctx)
	if err != nil {
		s.text = now
		serve.LogProblems(s.log, err)
		return
	}
	s.server.Use(p)
	s.log.Info("pack reloaded", "tools", len(p.Tools), "skills", len(p.Skills.List().Skills))
	s.warn(p)
}

// files returns the files that the pack depends on.
func (s *serving) files() []string {
	files, _ := manifest.Files(s.path)
	if named := s.named.Load(); named != nil {
		files = append(files, *named...)
	}
	return files
}

// watched returns the files whose folders are watched.
func (s *serving) watched() []string { return append(s.files(), s.skills.Load().Watched()...) }

// content returns the text of all files, to notice a change.
func (s *serving) content() []byte {
	var b bytes.Buffer
	for _, file := range s.files() {
		text, err := os.ReadFile(file)
		fmt.Fprintf(&b, "%s %v %d\n%s\n", file, err, len(text), text)
	}
	list := s.skills.Load().List()
	for _, one := range list.Skills {
		b.Write(one.Entry)
	}
	fmt.Fprintf(&b, "%v %t", list.Problems, skill.Open(s.path) != nil)
	return b.Bytes()
}
