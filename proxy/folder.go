package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/folder"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file finds the folder of the client of a call, for a server with isolation: folder. In this order:
//
//	the header Junction-Folder
//	the roots of the client: a legacy one is asked once for each session, a modern one by input_required
//	the header Junction-Working-Directory, of junction stdio and junction call
//
// The folder is settled before anything is asked or called, and belongs to the identity of the request. So a
// state of Junction, an approval or a kept result of one folder is worth nothing in another one.

// The headers in which a client says where it works. Junction sends neither to a server.
const (
	headerFolder  = "Junction-Folder"
	headerWorking = "Junction-Working-Directory"
)

// rootsKey names the request for roots in an input_required result of Junction.
const rootsKey = "junction_roots"

// rootsPatience is how long a legacy client has to answer roots/list. Then it counts as one without roots.
const rootsPatience = 20 * time.Second

// maxRoots bounds the roots of a client that are kept, in bytes and in number.
const (
	maxRoots     = 256
	maxRootBytes = 64 << 10
)

// located is where the client of an exchange works.
type located struct {
	folders  *upstream.Folders // nil for none
	uris     []string          // the roots that folders was made of; nil for a header
	rootless string            // why the client has no roots, if it was asked; "" if it has, or was not
	rooted   []string          // see upstream.Call.Rooted
}

// Window returns what stands for the session of a modern client, for a server with isolation: session: the folder
// that its headers name; "" for none. It decides only which calls share a process, so that it needs no permission.
// The roots do not count: a list cannot ask for them, and must be that of the calls.
func Window(header map[string][]string) string {
	for _, name := range [...]string{headerFolder, headerWorking} {
		if path, err := folder.Headers(header[name]); err == nil && path != "" {
			return upstream.WindowIn(path)
		}
	}
	return ""
}

// roots are those of a legacy session.
type roots struct {
	mu      sync.Mutex
	known   bool // the client has answered, or has not in time
	uris    []string
	without string        // why there are no uris
	count   uint64        // changes that the client has announced
	asking  chan struct{} // closed when the client is not asked any more; nil while it is not
}

// RootsChanged has the client asked for its roots again when they are needed.
func (s *Session) RootsChanged() {
	s.roots.mu.Lock()
	defer s.roots.mu.Unlock()
	s.roots.known, s.roots.count = false, s.roots.count+1
}

// locate settles the folder of a call to a server with isolation: folder. A result is the answer to the
// request: the client is asked for its roots, or the call cannot be made.
func (s *Core) locate(ctx context.Context, x *Exchange) (*Result, error) {
	ask, err := s.findFolders(ctx, x, x.target.Backend)
	switch {
	case ask != nil || err != nil && ctx.Err() != nil:
		return ask, err
	case err == nil && x.folders == nil && x.target.Backend.NeedsFolder():
		err = x.withoutFolder()
	}
	if x.Info.Folder = x.folders.Path(); err == nil {
		s.bringOthers(ctx, x)
		return nil, nil
	}
	if x.target.Part != upstream.PartTools {
		return nil, placeless(x.target.Backend, err)
	}
	x.Info.Outcome = Invalid
	return new(s.toolText(x, folderText(x.target.Backend, err), isError)), nil
}

// placeless returns the error of a request that cannot be made in the folder of its client.
func placeless(b view.Backend, err error) error {
	return InvalidParams("Invalid params: %s", folderText(b, err))
}

// folderText returns the text about a call that cannot be made in the folder of its client.
func folderText(b view.Backend, err error) string {
	return fmt.Sprintf("The server %s works in the folder of its client, and this call cannot be made: %v.",
		b.Name(), err)
}

// findFolders sets x.folders.
func (s *Core) findFolders(ctx context.Context, x *Exchange, b view.Backend) (ask *Result, err error) {
	path, err := folder.Headers(x.Header[headerFolder])
	if err != nil {
		return nil, fmt.Errorf("header %s: %w", headerFolder, err)
	}
	if path != "" {
		return nil, x.admit(ctx, b, path)
	}
	uris, ask, err := s.rootsOf(ctx, x)
	if ask != nil || err != nil {
		return ask, err
	}
	if len(uris) > 0 {
		return nil, x.admitRoots(ctx, b, uris)
	}
	if path, err = folder.Headers(x.Header[headerWorking]); err != nil || path == "" {
		return nil, err
	}
	return nil, x.admit(ctx, b, path)
}

// foldersOf returns the folders of the client for a server whose call is not about to be made; nil for a server that
// needs none. The error is the reason why the client has none.
func (s *Core) foldersOf(ctx context.Context, x *Exchange, b view.Backend) (*upstream.Folders, error) {
	if !b.ByFolder() {
		return nil, nil
	}
	defer func() { x.located = located{} }()
	if _, err := s.findFolders(ctx, x, b); err != nil {
		return nil, err
	}
	if x.folders == nil && b.NeedsFolder() {
		return nil, x.withoutFolder()
	}
	return x.folders, nil
}

// bring lends the folder of the client to a server that lists nothing without one. The error is the reason why the
// client has no folder.
func (s *Core) bring(ctx context.Context, x *Exchange, b view.Backend) error {
	folders, err := s.foldersOf(ctx, x, b)
	if err == nil {
		b.Bring(ctx, folders)
	}
	return err
}

// folderWait is how long a list of a legacy session waits for servers that are read in the folder of its client, if
// catalog.first_wait is not longer. It is longer than that, because Codex reads a list once, and such a server cannot
// have begun before. Clients of the modern era read the list again after a change, and Claude Code sends its first
// model request without any of our tools if the list takes longer than catalog.first_wait.
const folderWait = 5 * time.Second

// bringAll is bring for all servers of a list, at the same time. It reports whether the lists may be other ones now.
func (s *Core) bringAll(ctx context.Context, x *Exchange, seen *view.Sight) bool {
	var bringing sync.WaitGroup
	var waited atomic.Bool
	wait := x.Snapshot.Config.FirstWait
	if x.Era == client.EraLegacy {
		wait = max(wait, folderWait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for st := range seen.Stocks() {
		b := st.Backend
		if !st.Catalog.Listed.IsZero() || !b.AwaitsFolder() {
			continue
		}
		// a call says why the client has no folder
		if folders, err := s.foldersOf(ctx, x, b); err == nil && folders != nil {
			bringing.Go(func() {
				if b.Bring(ctx, folders) {
					waited.Store(true)
				}
			})
		}
	}
	bringing.Wait()
	return waited.Load()
}

// bringOthers lends the folder of a call to the other servers that wait for one. A modern client with roots alone can
// name its folder by a call, and by no list.
func (s *Core) bringOthers(ctx context.Context, x *Exchange) {
	for st := range x.Subject.Sight().Stocks() {
		b := st.Backend
		if b == x.target.Backend || !st.Catalog.Listed.IsZero() || !b.AwaitsFolder() {
			continue
		}
		if folders, err := x.folders.Again(ctx, x.Folders(b)); err == nil {
			b.BringLater(folders)
		}
	}
}

// warm opens the connection for the calls of the client, if the entry says so.
func (s *Core) warm(ctx context.Context, x *Exchange, b view.Backend) {
	folders, err := s.foldersOf(ctx, x, b)
	if err != nil {
		return // a call says why
	}
	c := x.coming()
	c.Folders = folders
	config := b.Config()
	if c.Forwarded, err = config.Forwarded(x.Header); err != nil {
		return // a call says why
	}
	b.Warm(c)
}

// admit sets the folder that a header names.
func (x *Exchange) admit(ctx context.Context, b view.Backend, path string) error {
	g := x.Folders(b)
	place, err := g.Admit(ctx, x.Grant.Name(), path)
	if err != nil {
		return err
	}
	x.folders = upstream.NewFolders(folder.Set{place}, g, x.Grant.Name())
	return nil
}

// admitRoots sets the folders of the roots of the client.
func (x *Exchange) admitRoots(ctx context.Context, b view.Backend, uris []string) error {
	g := x.Folders(b)
	set, err := g.AdmitRoots(ctx, x.Grant.Name(), uris)
	if err != nil {
		return err
	}
	x.folders = upstream.NewFolders(set, g, x.Grant.Name())
	x.uris = uris
	return nil
}

// AdmitAgain returns the folders that another member has permitted for a call of the client to a server. Both must
// permit them, each by the rules and the file system of its machine. The error is for the client.
func (x *Exchange) AdmitAgain(ctx context.Context, server string, paths []string) (*upstream.Folders, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	for st := range x.Subject.Sight().Stocks() {
		if b := st.Backend; b.Name() == server {
			folders, err := upstream.AdmitFolders(ctx, x.Folders(b), x.Grant.Name(), paths)
			if err != nil {
				return nil, placeless(b, err)
			}
			return folders, nil
		}
	}
	return nil, UnavailableError("the server has no tools for this caller any more")
}

// admitAgain sets the folders in which a task was begun.
func (x *Exchange) admitAgain(ctx context.Context, task sealed.Task) error {
	switch {
	case len(task.Roots) > 0:
		return x.admitRoots(ctx, x.target.Backend, task.Roots)
	case task.Folder != "":
		return x.admit(ctx, x.target.Backend, task.Folder)
	}
	return nil
}

// rootsOf returns the roots of the client. ask is the request for them to a modern client.
func (s *Core) rootsOf(ctx context.Context, x *Exchange) (uris []string, ask *Result, err error) {
	if x.Era == client.EraLegacy {
		return x.sessionRoots(ctx), nil, nil
	}
	text, err := x.Params.String("requestState")
	if err != nil && err != raw.ErrAbsent {
		return nil, nil, err
	}
	if err == nil {
		st, ok := s.sealer.OpenState(text, x.Principal.ID)
		switch {
		case !ok:
			return nil, nil, errors.New("requestState is unknown, or has expired; make the request without it")
		case st.Kind != sealed.Roots:
			return st.Roots, nil, nil
		}
		answers, _ := x.Params.Object("inputResponses")
		answer, _ := answers.Get(rootsKey)
		if uris = rootURIs(answer); answer == nil {
			x.rootless = noAnswer
		} else if uris == nil {
			x.rootless = noRoots
		}
		return uris, nil, nil
	}
	if x.target == nil || !x.Who.Profile.Roots || !asksInput(x.Msg.Method) { // no call is about to be made
		return nil, nil, nil
	}
	request := fmt.Appendf(nil, `"%s":{"method":"roots/list"}`, rootsKey)
	return nil, new(s.inputRequired(x, [][]byte{request}, sealed.State{Kind: sealed.Roots,
		Asked: x.asking("", string(mcp.MethodListRoots))})), nil
}

// asksInput reports whether the answer to a method may be input_required (2026-07-28, basic/patterns/mrtr).
func asksInput(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// sessionRoots returns the roots of a legacy session. The client is asked once, and again after it has announced
// a change; other calls of the session wait for the answer, or until ctx ends.
func (x *Exchange) sessionRoots(ctx context.Context) []string {
	if x.Session == nil || x.sessionless() || !x.Who.Profile.Roots {
		return nil
	}
	r := &x.Session.roots
	for {
		r.mu.Lock()
		busy := r.asking
		switch {
		case r.known || !x.front.Hears():
			defer r.mu.Unlock()
			if x.rootless = r.without; !r.known && r.uris == nil {
				x.rootless = noStream
			}
			return r.uris
		case busy == nil:
			r.asking = make(chan struct{})
			count := r.count
			r.mu.Unlock()
			return x.askRoots(ctx, r, count)
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil
		}
	}
}

// askRoots asks a legacy client for its roots, and ends r.asking. count is that of r before.
func (x *Exchange) askRoots(ctx context.Context, r *roots, count uint64) []string {
	asking, cancel := context.WithTimeout(ctx, rootsPatience)
	defer cancel()
	answer, err := x.send(asking, Question{Method: string(mcp.MethodListRoots)}, []byte(`{}`), nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.asking)
	r.asking = nil
	if ctx.Err() != nil {
		return nil // another call asks again
	}
	r.uris, r.without, r.known = nil, noAnswer, r.count == count
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.without = fmt.Sprintf("has answered roots/list with the error %.100q", refused.Message)
	} else if err == nil {
		r.uris, r.without = rootURIs(answer), noRoots
	}
	x.rootless = r.without
	return r.uris
}

// rootURIs returns the URIs of a result of roots/list.
func rootURIs(result []byte) (uris []string) {
	o, err := raw.Parse(result)
	if err != nil {
		return nil
	}
	list, err := o.Elements("roots")
	if err != nil {
		return nil
	}
	size := 0
	for _, v := range list[:min(len(list), maxRoots)] {
		root, err := raw.Parse(v)
		if err != nil {
			continue
		}
		uri, err := root.String("uri")
		if err != nil {
			continue
		}
		if size += len(uri); size > maxRootBytes {
			break
		}
		uris = append(uris, uri)
	}
	return uris
}

// Why a client that declares roots has none, after the words "the client".
const (
	noStream = "declares roots, and cannot be asked for them, because it takes no event stream"
	noAnswer = "declares roots, and has not answered roots/list"
	noRoots  = "declares roots, and has no folder open"
)

// withoutFolder returns the error of a client without a folder, with what to do, by what its request shows.
func (x *Exchange) withoutFolder() error {
	const connect = "junction connect for it again, which writes the header if the client can send one"
	why, do := "declares no roots, and its request has no header "+headerFolder,
		"give --folder PATH to junction call; for another client, run "+connect+", or start it through junction stdio "+
			"--folder PATH"
	_, sent := x.Header[headerFolder]
	switch {
	case sent:
		why = "has sent the header " + headerFolder + " without a folder: the variable in it is not set"
		do = "start the client in a shell that is in the folder, or start it through junction stdio --folder PATH"
	case x.rootless != "":
		why, do = x.rootless, "open a folder in the client, or run "+connect
	case x.Who.Profile.Roots:
		why, do = "cannot be asked for its roots by the answer to "+x.Msg.Method, "run "+connect
	}
	return fmt.Errorf("the client %s; %s", why, do)
}
