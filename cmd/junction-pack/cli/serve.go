package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"junction/cmd/junction-pack/manifest"
	"junction/cmd/junction-pack/pack"
)

// Serve serves the pack at path over stdio, or over HTTP if address is not empty, until ctx is done.
// A changed file is read again.
func Serve(ctx context.Context, path, address string, stdin io.Reader, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	s := &serving{path: path, log: log, runners: pack.NewRunners(log)}
	p, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.server = pack.NewServer(p, log)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { pack.Watch(ctx, path, s.files, func() { s.reload(ctx) }, log) })
	if address == "" {
		return s.server.ServeStdio(ctx, stdin, stdout)
	}
	l, err := pack.Listen(address)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "serving http://%s%s\n", l.Addr(), pack.Path)
	return s.server.ServeHTTP(ctx, l)
}

// serving is a pack that is served. load and reload are called by one goroutine at a time.
type serving struct {
	path    string
	log     *slog.Logger
	runners pack.Runners
	server  *pack.Server
	text    []byte // of all files, when they were last read
	named   atomic.Pointer[[]string]
}

// load reads the manifests and logs warnings.
func (s *serving) load(ctx context.Context) (*pack.Pack, error) {
	before, known := s.content(), len(s.files())
	p, err := made(ctx, s.path, manifest.Options{Getenv: os.LookupEnv}, s.runners)
	if err != nil {
		return nil, err
	}
	s.named.Store(&p.Files)
	if s.text = before; len(s.files()) != known { // the first time, or the pack names other files
		s.text = s.content()
	}
	for _, w := range p.Warnings {
		s.log.Warn(w.Text, "file", w.File, "line", w.Line, "key", w.Path)
	}
	return p, nil
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
		pack.LogProblems(s.log, err)
		return
	}
	s.server.Use(p)
	s.log.Info("pack reloaded", "tools", len(p.Tools))
}

// files returns the files that the pack depends on.
func (s *serving) files() []string {
	files, _ := manifest.Files(s.path)
	if named := s.named.Load(); named != nil {
		files = append(files, *named...)
	}
	return files
}

// content returns the text of all files, to notice a change.
func (s *serving) content() []byte {
	var b bytes.Buffer
	for _, file := range s.files() {
		text, err := os.ReadFile(file)
		fmt.Fprintf(&b, "%s %v %d\n%s\n", file, err, len(text), text)
	}
	return b.Bytes()
}
