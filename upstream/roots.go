package upstream

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
)

// AsksForRoots starts the command of an entry once, as a legacy client with roots does, and reports whether the
// server asks for them. It gets no answer that names a folder. The process ends before AsksForRoots returns. The
// error means that the server did not answer the handshake before ctx ended, so that it is not known.
func AsksForRoots(ctx context.Context, name string, c Config, o Options) (bool, error) {
	o = o.withDefaults()
	p := &pool{name: name, connConfig: c.withDefaults(o.Defaults).connConfig(), options: o,
		log: o.Log.With("upstream", name)}
	return p.asksForRoots(ctx)
}

func (p *pool) asksForRoots(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.connConfig.ConnectTimeout)
	defer cancel()
	dialing := p.dialOptions()
	seen := &rootsSeen{asked: make(chan struct{})}
	dialing.Observer, dialing.Era = seen, client.EraLegacy
	d := client.NewDialer(dialing)
	conn, err := d.Dial(ctx, client.Profile{Roots: true, RootsChange: true}, client.Hooks{Changed: func() {}})
	if err != nil {
		return seen.any(), p.shown(err)
	}
	defer conn.Close()
	_ = conn.Ping(ctx) // the server may ask at once, or when it has a moment
	late := time.NewTimer(rootsTime)
	defer late.Stop()
	select {
	case <-seen.asked:
	case <-late.C:
	case <-ctx.Done():
	}
	return seen.any(), nil
}

// noteRootless notes that the server has asked for roots outside of the calls of clients. A command that names a
// folder works there.
func (p *pool) noteRootless() {
	if p.connConfig.Isolation != IsolationFolder && FolderOf(p.connConfig.Command) == "" {
		p.rootless.Store(true)
	}
}

// FolderOf returns the first of FoldersOf; "" for none.
func FolderOf(command []string) string {
	if all := FoldersOf(command); len(all) > 0 {
		return all[0]
	}
	return ""
}

// FoldersOf returns the arguments of a command that are full paths of folders. It looks at the file system.
func FoldersOf(command []string) (all []string) {
	for _, path := range command[min(1, len(command)):] {
		if !filepath.IsAbs(path) {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			all = append(all, path)
		}
	}
	return all
}

// mayBeRootless reports whether a server is started once more, to find out whether it asks for roots. A modern
// server asks during a call.
func (p *pool) mayBeRootless(era client.Era) bool {
	return p.connConfig.Kind().Process && era == client.EraLegacy && p.connConfig.Isolation != IsolationFolder &&
		FolderOf(p.connConfig.Command) == ""
}

// rootsTime is how long a server that has answered the handshake has to ask for roots.
const rootsTime = time.Second

// rootsSeen notices a request for roots.
type rootsSeen struct {
	once  sync.Once
	asked chan struct{} // closed by the first request
}

func (s *rootsSeen) any() bool {
	select {
	case <-s.asked:
		return true
	default:
		return false
	}
}

func (s *rootsSeen) Begin(client.Sent) (client.Trace, client.TraceContext) {
	return nil, client.TraceContext{}
}
func (s *rootsSeen) End(client.Sent, client.Trace, client.Received) {}

func (s *rootsSeen) Asked(a client.Asked) client.Trace {
	if a.Method == string(mcp.MethodListRoots) {
		s.once.Do(func() { close(s.asked) })
	}
	return nil
}

func (s *rootsSeen) Answered(client.Asked, client.Trace, client.Received) {}
func (s *rootsSeen) Ignored(string)                                       {}
