package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/folder"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/stdio"
)

// This file is about isolation: folder. A process belongs to one principal and to the permitted folders of
// its client. It starts in the first one if the entry says so, gets its path in place of ${folder}, and
// learns the others by roots/list, which Junction answers. So no request of the process reaches another
// window.

// Folders are the permitted folders of the client of a call. They are immutable.
type Folders struct {
	set       folder.Set
	guard     *folder.Guard
	principal string
	key       string
}

// NewFolders returns the folders that the guard has permitted to a principal; nil for an empty set.
func NewFolders(set folder.Set, guard *folder.Guard, principal string) *Folders {
	if len(set) == 0 {
		return nil
	}
	return &Folders{set, guard, principal, set.Key()}
}

// FirstPermitted returns the first folder that the guard permits to a principal; nil if there is none.
func FirstPermitted(ctx context.Context, guard *folder.Guard, principal string) *Folders {
	for _, path := range guard.Permitted() {
		if place, err := guard.Admit(ctx, principal, path); err == nil {
			return NewFolders(folder.Set{place}, guard, principal)
		}
	}
	return nil
}

// Key returns a text that is equal for the same folders; "" for nil.
func (f *Folders) Key() string {
	if f == nil {
		return ""
	}
	return f.key
}

// Again returns the same folders, as a Guard permits them now.
func (f *Folders) Again(ctx context.Context, guard *folder.Guard) (*Folders, error) {
	if f == nil {
		return nil, nil
	}
	return AdmitFolders(ctx, guard, f.principal, f.Paths())
}

// AdmitFolders returns the folders with these paths that the guard permits to a principal; nil without paths. The
// first one must be permitted.
func AdmitFolders(ctx context.Context, guard *folder.Guard, principal string, paths []string) (*Folders, error) {
	var set folder.Set
	for i, path := range paths {
		place, err := guard.Admit(ctx, principal, path)
		switch {
		case err == nil:
			set = append(set, place)
		case i == 0:
			return nil, err
		}
	}
	return NewFolders(set, guard, principal), nil
}

// gone reports whether a call can name these folders no more: one of them was removed, replaced or forbidden.
func (f *Folders) gone(ctx context.Context) bool {
	return slices.ContainsFunc(f.set, func(place folder.Place) bool {
		dir, err := f.guard.Open(ctx, f.principal, place)
		if err != nil {
			return errors.As(err, new(*folder.Refused))
		}
		dir.Close()
		return false
	})
}

// Path returns the absolute path of the first folder, which is the folder of the client; "" for nil.
func (f *Folders) Path() string {
	if f == nil {
		return ""
	}
	return f.set[0].Path()
}

// Paths returns the absolute paths of all folders, first that of the client; nil for nil.
func (f *Folders) Paths() (paths []string) {
	if f == nil {
		return nil
	}
	for _, place := range f.set {
		paths = append(paths, place.Path())
	}
	return paths
}

// folder returns the first folder, with the others. None is opened if another one has its path now.
func (f *Folders) folder() *stdio.Folder {
	var all []*stdio.Folder
	for _, place := range f.set {
		all = append(all, &stdio.Folder{Path: place.Path(), Open: func() (*os.File, error) {
			return f.guard.Open(context.Background(), f.principal, place)
		}})
	}
	all[0].Others = all[1:]
	return all[0]
}

// roots returns the result of roots/list.
func (f *Folders) roots() []byte { return rootsOf(f.Paths()...) }

// rootsOf returns the result of roots/list with these paths.
func rootsOf(paths ...string) []byte {
	b := []byte(`{"roots":[`)
	for i, path := range paths {
		if i > 0 {
			b = append(b, ',')
		}
		uri := filepath.ToSlash(path)
		if !strings.HasPrefix(uri, "/") { // C:/
			uri = "/" + uri
		}
		b = raw.AppendQuote(append(b, `{"uri":`...), (&url.URL{Scheme: "file", Path: uri}).String())
		b = append(raw.AppendQuote(append(b, `,"name":`...), filepath.Base(path)), '}')
	}
	return append(b, "]}"...)
}

// ByFolder reports whether a process belongs to the folders of a client.
func (p *pool) ByFolder() bool { return p.connConfig.Isolation == IsolationFolder }

// keyOf is key for a call. A process belongs to one principal and one set of folders. Without authentication, callers
// are told apart by their program (Account), so that it belongs to one program, too: the state and the questions of
// two agents stay apart. This protects nothing, because a program may call itself as another one does.
func (p *pool) keyOf(c *Call, legacySide bool) linkKey {
	key := p.key(c.Profile, c.session(), c.Principal, legacySide)
	if len(p.connConfig.ForwardHeaders) > 0 && (legacySide || p.Catalog().Era != client.EraModern) {
		key = key.ofCaller(c, &p.connConfig)
	}
	if c.Folders != nil && p.ByFolder() {
		key.profile.Roots = true
		key.holder, key.user = folderHolder(c.Folders, c.Principal), folderUser(c.Principal, c.Account)
	}
	return key
}

// folderUser returns who has the processes in a folder: the principal, or without authentication the program.
func folderUser(principal, account string) string { return cmp.Or(principal, account) }

// folderHolder returns the holder of the processes of a principal in folders.
func folderHolder(f *Folders, principal string) string { return "folder " + f.key + " " + principal }

// errNoFolder means that a process for the folder of a client has none.
var errNoFolder = errors.New("the server works in the folder of its client, and the call has none " +
	"(isolation: folder)")

// placeless reports whether no process can make the call, because it needs the folder of its client.
func (p *pool) placeless(c *Call) bool {
	return c.Folders == nil && p.NeedsFolder()
}

// NeedsFolder reports whether no process can make a call without the folder of its client, because the entry names
// it. A server that asks for roots works without them as with a client that has none.
func (p *pool) NeedsFolder() bool { return p.roams() && p.connConfig.NamesFolder() }

// roams reports whether the server has no folder of its own, so that its lists are read in the empty folder, or in
// one of a client.
func (p *pool) roams() bool { return p.ByFolder() && p.connConfig.fixedDir() == "" }

// NamesFolder reports whether the entry has ${folder}.
func (c *Config) NamesFolder() bool {
	return folder.Named(c.Dir) || slices.ContainsFunc(c.Command, folder.Named) ||
		slices.ContainsFunc(slices.Collect(maps.Values(c.Env)), folder.Named)
}

// home is the folder of a process without a client: dir of the entry, or else a private empty folder. It is
// made once, and belongs to the pool.
type home struct {
	once sync.Once
	path string
	err  error
}

// fixedDir returns dir of the entry; "" if it is that of the client, or the one of Junction.
func (c *Config) fixedDir() string {
	if folder.Named(c.Dir) {
		return ""
	}
	return c.Dir
}

// emptyFolder returns the private empty folder.
func (p *pool) emptyFolder() (string, error) {
	p.home.once.Do(func() {
		if p.home.path, p.home.err = os.MkdirTemp("", "junction-no-folder-"); p.home.err == nil {
			p.home.path, p.home.err = filepath.EvalSymlinks(p.home.path)
		}
	})
	return p.home.path, p.home.err
}

// removeHome removes the private empty folder, and what processes have left in it.
func (p *pool) removeHome() {
	p.home.once.Do(func() {})
	if p.home.path != "" {
		os.RemoveAll(p.home.path)
	}
}

// dialerOf returns the dialer of a link, and the answer to roots/list of its process; nil if Junction has none.
// token is the credential of the caller.
func (p *pool) dialerOf(l *link, token string) (*client.Dialer, func() []byte, error) {
	if l.key.forwarded != "" {
		return p.dialer.With(l.key.fields()), nil, nil
	}
	if !p.ByFolder() && !p.connConfig.keyed() {
		return p.dialer, nil, nil
	}
	f := l.folders
	if l.readsShared {
		f = p.lent.Load()
	}
	if l.dialer != nil && l.dialedIn == f && l.token == token {
		return l.dialer, l.roots, nil
	}
	o, roots, err := p.place(f, l.readsShared)
	if err != nil {
		return nil, nil, err
	}
	if p.connConfig.keyed() {
		o.Env.Own = withKey(o.Env.Own, token)
	}
	l.dialer, l.dialedIn, l.token, l.roots = client.NewDialer(o), f, token, roots
	if era := p.Catalog().Era; era != "" && !l.readsShared {
		l.dialer.Expect(era)
	}
	return l.dialer, l.roots, nil
}

// place returns the options for a process in the folders of a client, and the answer to its roots/list. Without
// folders, the process is in dir of the entry, or else in the empty folder if it only reads the lists. A process for
// calls without folders is in none, and is told no roots.
func (p *pool) place(f *Folders, reads bool) (o client.Options, roots func() []byte, err error) {
	if o = p.dialOptions(); !p.ByFolder() {
		return o, nil, nil
	}
	path := p.connConfig.fixedDir()
	switch {
	case f != nil:
		path, o.Folder = f.Path(), f.folder()
	case path != "":
	case !reads && p.NeedsFolder():
		return o, nil, errNoFolder
	case !reads:
		return o, nil, nil
	default:
		if path, err = p.emptyFolder(); err != nil {
			return o, nil, err
		}
		o.Folder = &stdio.Folder{Path: path, Open: func() (*os.File, error) { return os.Open(path) }}
	}
	if roots = func() []byte { return rootsOf(path) }; f != nil {
		roots = f.roots
	}
	if o.Folder != nil {
		o.Folder.ReadOnly = p.connConfig.Sandbox.OnlyReadsFolder()
		if folder.Named(o.Dir) {
			o.Dir, o.Folder.Start = "", true
		}
	}
	return o, roots, placeIn(&o, path)
}

// placeIn puts the path of the folder where ${folder} stands in the command and its environment.
func placeIn(o *client.Options, path string) (err error) {
	put := func(value string) string {
		before, named := strings.CutSuffix(value, folder.Word)
		if !named {
			return value
		}
		if bad := divides(path); before != "" && bad != "" && err == nil {
			err = fmt.Errorf("the name of the folder has %s, at which the server may divide %q; rename the folder", bad,
				value)
		}
		return before + path
	}
	command := make([]string, len(o.Command))
	for i, word := range o.Command {
		command[i] = put(word)
	}
	own := make(map[string]string, len(o.Env.Own))
	for name, value := range o.Env.Own {
		own[name] = put(value)
	}
	o.Command, o.Env.Own = command, own
	return err
}

// divides returns what in a path a program may take for the end of a value; "" for nothing.
func divides(path string) string {
	path = path[len(filepath.VolumeName(path)):]
	for _, r := range path {
		switch {
		case r < ' ' || r == 0x7f:
			return "a control character"
		case strings.ContainsRune(":,;\"'`$&|<>*?!", r), r == '\\' && filepath.Separator != '\\':
			return string(r)
		}
	}
	return ""
}

// eraDialer returns the dialer of a link that has been dialed.
func (p *pool) eraDialer(l *link) *client.Dialer {
	if l.dialer != nil {
		return l.dialer
	}
	return p.dialer
}

// mostRootRounds is how often a modern server may ask for roots alone during one call, and mostRooted how often at
// once: each answer has all roots.
const (
	mostRootRounds = 3
	mostRooted     = 8
)

var errRootRounds = fmt.Errorf("it asked for roots more than %d times during one call", mostRootRounds)

// takeRoots takes the requests for roots out of an input_required result, and keeps their keys in c.Rooted for the next
// round. If the server has asked for nothing else, it prepares that round, and reports that the call is to be made
// again at once.
func (c *Call) takeRoots(r *client.Result) (again bool, err error) {
	c.Rooted = nil
	if r.Type != client.TypeInputRequired {
		return false, nil
	}
	requests, keys, err := rootRequests(r)
	if len(keys) == 0 || err != nil {
		return false, err
	}
	if c.Rooted = keys; len(keys) < requests.Len() {
		return false, leaveOut(r, requests, keys)
	}
	edits := []raw.Edit{{Name: "inputResponses"}, {Name: "requestState"}}
	if state, err := r.Object.Get("requestState"); err == nil {
		edits[1].Value = append([]byte(nil), state...) // the next call overwrites r
	}
	if c.Params, err = c.Params.With(edits...); err != nil {
		return false, err
	}
	c.Continues = true
	return true, nil
}

// rootRequests returns the requests of a result, and the keys of those for roots.
func rootRequests(r *client.Result) (requests raw.Object, keys []string, err error) {
	if requests, err = r.Object.Object("inputRequests"); err != nil {
		return requests, nil, nil // the reader of the result says why
	}
	for _, m := range requests.Members() {
		name, err := m.Name()
		if err != nil {
			return requests, nil, err
		}
		method, err := raw.Get(m.Value, "method")
		if err != nil {
			continue
		}
		if text, err := raw.String(method); err == nil && text == string(mcp.MethodListRoots) {
			keys = append(keys, name)
		}
	}
	if len(keys) > mostRooted {
		return requests, nil, fmt.Errorf("it asked for roots %d times at once", len(keys))
	}
	return requests, keys, nil
}

// leaveOut takes requests with these keys out of a result.
func leaveOut(r *client.Result, requests raw.Object, keys []string) error {
	var edits []raw.Edit
	for _, key := range keys {
		edits = append(edits, raw.Edit{Name: key})
	}
	left, err := requests.Splice(edits...)
	if err == nil {
		r.Object, err = r.Object.With(raw.Edit{Name: "inputRequests", Value: left})
	}
	return err
}

const (
	methodTasksGet    = "tasks/get"
	methodTasksUpdate = "tasks/update"
)

// answerTask answers the requests for roots in the state of a task, and takes them out of the result. If there is no
// other one, it reports that the state is to be asked for again at once.
func (u *Upstream) answerTask(ctx context.Context, cn client.Conn, c *Call, clock *client.Clock, roots []byte,
	r *client.Result) (again bool, err error) {
	requests, keys, err := rootRequests(r)
	if len(keys) == 0 || err != nil {
		return false, err
	}
	answers := []byte("{")
	for i, key := range keys {
		if i > 0 {
			answers = append(answers, ',')
		}
		answers = append(append(raw.AppendQuote(answers, key), ':'), roots...)
	}
	update := *u.own(&c.Call, nil)
	update.Method, update.Buffer = methodTasksUpdate, nil // r has the memory of c.Buffer
	update.Params, err = c.Params.With(raw.Edit{Name: "inputResponses", Value: append(answers, '}')})
	if err == nil {
		_, err = cn.Call(ctx, &update, clock)
	}
	if err != nil {
		return false, fmt.Errorf("the roots of its task: %w", err)
	}
	if len(keys) < requests.Len() {
		return false, leaveOut(r, requests, keys)
	}
	return true, nil
}

// giveRoots adds the answers to the requests for roots of the round before, in place of any of the client.
func (c *Call) giveRoots(roots []byte) error {
	answers, err := c.Params.Object("inputResponses")
	if err == raw.ErrAbsent {
		answers, err = raw.Parse([]byte("{}"))
	}
	var edits []raw.Edit
	for _, key := range c.Rooted {
		edits = append(edits, raw.Edit{Name: key, Value: roots})
	}
	var text []byte
	if err == nil {
		text, err = answers.Splice(edits...)
	}
	if err == nil {
		c.Params, err = c.Params.With(raw.Edit{Name: "inputResponses", Value: text})
	}
	return err
}

// AwaitsFolder reports whether nothing was listed yet, and the lists are read in a folder of a client if the server
// ends in an empty one.
func (p *pool) AwaitsFolder() bool { return p.roams() && p.Catalog().Listed.IsZero() }

// Bring lends the folders of a client to the reading of the lists, if the server has not listed anything in an
// empty folder. It waits until an attempt in a folder has ended, or ctx ends, and reports whether it had to wait.
func (p *pool) Bring(ctx context.Context, f *Folders) bool {
	if f == nil || !p.AwaitsFolder() {
		return false
	}
	for range 2 { // an attempt in the empty folder may be in progress
		p.lend(f)
		l, _, err := p.take(ctx, p.reading(), waiter{})
		if err == nil {
			l.release()
		}
		if !errors.As(err, new(*WaitingError)) {
			break
		}
	}
	return true
}

// lend has the lists read in the folders of a client.
func (p *pool) lend(f *Folders) {
	if before := p.lent.Load(); before == nil || before.key != f.key {
		p.lent.CompareAndSwap(before, f)
	}
}

// BringLater is Bring for a call, which does not need the lists and does not wait for them. It also has the lists of
// an earlier process read again.
func (p *pool) BringLater(f *Folders) {
	if f == nil || !p.waits.Load() && !p.AwaitsFolder() {
		return
	}
	p.lend(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[p.reading()]; l != nil {
		pace.Wake(l.wake)
	}
}

// A WaitingError means that a server waits for the folder of a client: it has ended in an empty one, and its
// lists are read in the first permitted folder that a client brings.
type WaitingError struct{ err error }

func (e *WaitingError) Error() string { return waitsForFolder + "; the last attempt: " + e.err.Error() }

func (e *WaitingError) Unwrap() error { return e.err }

const (
	waitsForFolder = "it works in the folder of a client, and no client has named a permitted one yet"
	waitingAdvice  = "open a client in a permitted folder; junction folders list shows which are. If the client " +
		"names its folder by roots alone (MCP 2026-07-28 without the header Junction-Folder), first call any " +
		"other tool with isolation: folder there, or let junction connect write the header"
)

// awaited returns the error of an attempt to read the lists in folders that were lent; nil for the empty folder. A
// server that has ended in the empty folder waits for one of a client. It does so, too, if the folder that was
// lent is not there any more.
func (p *pool) awaited(lent *Folders, err error) error {
	exit, ended := errors.AsType[*stdio.ExitError](err)
	switch {
	case !p.roams():
		return err
	case lent != nil && errors.As(err, new(*folder.Refused)):
		p.lent.CompareAndSwap(lent, nil)
		return &WaitingError{err}
	case lent == nil && ended && !exit.Killed:
		return &WaitingError{err}
	}
	return err
}
