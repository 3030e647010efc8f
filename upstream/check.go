package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Report is the result of a check of an upstream.
type Report struct {
	Steps  []Step // the steps that were made, in order
	Err    error  // why the last step failed; nil if all steps succeeded
	Advice string // what to do about Err or Waits; "" if that is not known
	// Waits is why the lists cannot be read before a client names a folder (StateWaiting), in place of Err; nil if
	// they can.
	Waits error
	// Other is the method or the transport of another handshake and its error, if the server rejected
	// several; Err is about one of them. It is "" for none.
	Other string

	Era      client.Era
	Version  string // of the protocol
	Server   string // the name and the version that the server states; "" if it states none
	Latency  time.Duration
	Catalog  *Catalog // nil if it could not be read
	Bytes    int      // of the definitions of its tools
	Sandbox  string   // as in Status
	Findings []Finding
	// InUse is why the connection in use does not answer; nil if it does, if there is none, or if Status
	// says so.
	InUse error
	// Rootless means that the server asks for the folders of its client, and the entry gives it none.
	Rootless bool
}

// Unreached reports whether the last step failed because no connection could be opened.
func (r *Report) Unreached() bool { return errors.Is(r.Err, transport.ErrNotSent) }

// Step is a part of a check: start (of a command), handshake, list or ping.
type Step struct {
	Name string
	Took time.Duration
}

// Check asks over the connection that reads the catalog, opens another connection to the upstream and
// reads all its lists over that. It returns after that connection is closed. What it finds out about the
// connection in use is in Status.
func (u *Upstream) Check(ctx context.Context) Report {
	inUse := u.askInUse(ctx)
	r := check(ctx, u.name, u.connConfig, u.options, nil, u.lent.Load())
	r.InUse = inUse
	return r
}

// askInUse asks a question over the connection to a URL that reads the catalog: the control question, or
// a ping where no session can be lost. A command may handle one request at a time, so it is not asked.
func (p *pool) askInUse(ctx context.Context) error {
	p.mu.Lock()
	l := p.links[p.reading()]
	p.mu.Unlock()
	if l == nil || p.connConfig.Kind().Process || l.degraded() != nil {
		return nil
	}
	c := l.current()
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	if !l.losesSessions(c) {
		err := c.Ping(ctx)
		l.unsent(c, err)
		return p.shown(err)
	}
	if q := l.suspicion.raise(c); q != nil { // else it was asked just before
		pace.Sleep(ctx, p.connConfig.ConnectTimeout, q.done)
	}
	return nil
}

// Check checks an entry whose upstream does not run. It opens a connection with the resources of the
// Set, and returns after that connection is closed.
func (s *Set) Check(ctx context.Context, name string, c Config, o Options) Report {
	return s.CheckIn(ctx, name, c, o, nil)
}

// CheckIn is Check for a command that works in the folder of its client: its lists are read in the folders; nil for
// none.
func (s *Set) CheckIn(ctx context.Context, name string, c Config, o Options, folders *Folders) Report {
	o = o.withDefaults()
	o.watchdog = &s.watchdog
	o.writable = func() []string {
		if known := s.writable.Load(); known != nil {
			return slices.Concat(o.Writable, *known)
		}
		return o.Writable
	}
	if c.Confines {
		c.deciders = o.writable()
	}
	return check(ctx, name, c.withDefaults(o.Defaults).connConfig(), o, nil, folders)
}

// check checks an upstream over a connection of its own. conns has the HTTP connections; nil makes a
// pool. folders are those in which the lists are read, as for pool.lent.
func check(ctx context.Context, name string, config Config, o Options, conns *transport.Pool, folders *Folders) Report {
	o.checks = nil // it has time of its own for definitions
	p := &pool{name: name, connConfig: config, options: o, log: o.Log.With("upstream", name, "check", true)}
	p.lists.serve(p)
	defer p.removeHome()
	limit, cancel := context.WithTimeoutCause(ctx, config.ConnectTimeout, fmt.Errorf("%w within %v (connect_timeout)",
		errLate, config.ConnectTimeout))
	defer cancel()
	x := &examination{pool: p, folders: folders, limit: limit, began: time.Now(), step: stepHandshake}
	if config.Sandbox != nil {
		x.Sandbox = config.Sandbox.Enforcement(o.kernel())
	}
	if err := x.run(conns); err != nil {
		x.fail(err)
	} else if p.mayBeRootless(x.Era) {
		x.Rootless, _ = p.asksForRoots(limit)
	}
	return x.Report
}

// The steps of a check.
const (
	stepEntry     = "reading the entry"
	stepStart     = "start"
	stepHandshake = "handshake"
	stepList      = "list"
	stepPing      = "ping"
)

// examination is a check in progress.
type examination struct {
	Report
	pool    *pool
	folders *Folders // in which the lists are read; nil for none
	limit   context.Context
	step    string    // in progress
	began   time.Time // the step
}

// took ends the step in progress, and begins the next one.
func (x *examination) took(next string) {
	now := time.Now()
	x.Steps = append(x.Steps, Step{x.step, now.Sub(x.began)})
	x.step, x.began = next, now
}

func (x *examination) run(conns *transport.Pool) error {
	p, config := x.pool, &x.pool.connConfig
	dialing, roots, err := p.place(x.folders, true)
	if err != nil {
		return err
	}
	if conns != nil {
		dialing.Pool = conns
	}
	if p.options.Credentials == nil {
		dialing.Token = nil
	}
	if config.Kind().Process {
		x.step = stepStart
		dialing.Opened = func() {
			if x.step == stepStart {
				x.took(stepHandshake)
			}
		}
	}
	if config.Blocked != "" {
		x.step = stepEntry
		return errors.New(config.Blocked)
	}
	if err := p.mayDial(x.limit); err != nil {
		return err
	}
	d := client.NewDialer(dialing)
	defer d.CloseIdle()
	profile, hooks := p.reading().profile, client.Hooks{Changed: func() {}, Roots: roots}
	var c opened
	if c.Conn, err = d.Dial(x.limit, profile, hooks); err != nil {
		return err
	}
	defer func() { c.Close() }()
	x.took(stepList)
	x.meet(c.Info())

	if c.catalog, err = p.lists.read(x.limit, c, &Catalog{}); err != nil {
		return err
	}
	if other := p.askLegacy(x.limit, d, profile, hooks, c.catalog); other.catalog != nil {
		c.discard()
		c = other
		x.meet(c.Info())
	}
	x.took(stepPing)
	defer c.catalog.free() // the report stays for a short time
	x.look(c.catalog)

	if err := c.Ping(x.limit); err != nil {
		return err
	}
	x.took("")
	x.Latency = x.Steps[len(x.Steps)-1].Took
	return nil
}

// fail ends the step in progress with an error.
func (x *examination) fail(err error) {
	p := x.pool
	cause := context.Cause(x.limit)
	late := errors.Is(x.limit.Err(), context.DeadlineExceeded)
	noise := errors.As(err, new(*stdio.NoiseError)) // it has the cause already
	if late && !noise && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cause)) {
		err = fmt.Errorf("%w: %w", errLate, cause)
		if errors.Is(cause, errLate) {
			err = cause
		}
	}
	x.took("")
	var others []string
	both, more := errors.AsType[*client.RejectedError](err)
	for ; more; both, more = errors.AsType[*client.RejectedError](both.Err) {
		others = append(others, both.Method+": "+p.shown(both.Other).Error())
	}
	x.Other = strings.Join(others, "; ")
	_, err = p.lacking(err)
	if err = p.awaited(x.folders, err); stateAfter(err) == StateWaiting {
		x.Waits, x.Advice = p.shown(err), waitingAdvice
		return
	}
	x.Err, x.Advice = p.shown(err), advice(err, p.name, &p.connConfig)
}

// meet fills in what a server states about itself.
func (r *Report) meet(info *client.Info) {
	r.Era, r.Version, r.Server = info.Era, info.Version, calledItself(info.Server)
}

// look fills in what there is to report about a catalog.
func (r *Report) look(c *Catalog) {
	r.Catalog, r.Findings = c, c.findings()
	for i := range c.Tools {
		r.Bytes += len(c.Tools[i].Definition.Text())
	}
}

// mayDial returns an error if the operator has to sign in first.
func (p *pool) mayDial(ctx context.Context) error {
	if p.options.Credentials == nil {
		return nil
	}
	_, err := p.token(ctx)
	return err
}

// errNoConnection is the error of a connection that exceeds connect_timeout.
var errNoConnection = errors.New("no connection")

// errLate is the error of a check that exceeds connect_timeout.
var errLate = errors.New("no answer")

// calledItself returns the name and the version in the serverInfo of a server.
func calledItself(implementation []byte) string {
	o, err := raw.Parse(implementation)
	if err != nil {
		return ""
	}
	name, _ := o.String("name")
	version, _ := o.String("version")
	return transport.Line([]byte(strings.TrimSpace(name + " " + version)))
}

// sessionAdvice is what the operator can do about a session that does not work.
const sessionAdvice = "calls are still sent; Junction opens another session as soon as one works: look at the log " +
	"of the server, and restart the server if it stays"

// Finding is something about a definition that a person should know.
type Finding struct {
	Part Part
	Name string // of the item; "" is the whole list
	definition.Finding
}

// findings examines all definitions for mistakes that a person should know.
func (c *Catalog) findings() []Finding {
	var list []Finding
	for _, left := range c.Left {
		text := "left out"
		if left.Name == "" {
			text = "a definition, or the list, could not be read"
		}
		list = append(list, Finding{left.Part, left.Name, definition.Finding{Grave: true, Text: text,
			Detail: left.Reason, Advice: definition.AdviceAuthor}})
	}
	for _, m := range c.Mended {
		list = append(list, Finding{m.Part, m.Name, definition.Finding{
			Text: "changed, because some clients reject the whole list for it", Detail: m.Changes,
			Advice: definition.AdviceAuthor}})
	}
	for p := range Parts {
		folded, titles := map[string]string{}, map[string]string{}
		for i := range c.Items(p) {
			item := c.Item(p, i)
			look := &definition.Inspection{}
			low := strings.ToLower(item.Name)
			if other, ok := folded[low]; ok {
				look.Find(true, "names differ only in upper and lower case, which some clients take for one",
					"and "+other, "rename one with tools.NAME.as")
			}
			folded[low] = item.Name
			if title := definition.Title(item.Definition); title != "" {
				if other, ok := titles[title]; ok && p == PartTools {
					look.Find(false, "titles that are the same: a person who is asked cannot tell them apart",
						"as "+other, definition.AdviceAuthor)
				}
				titles[title] = item.Name
			}
			look.Texts(item.Definition.Text(), "")
			if p == PartTools {
				look.Tool(item.Definition, c.Tools[i].HeaderProblem)
			}
			for _, f := range look.Found {
				list = append(list, Finding{p, item.Name, f})
			}
		}
	}
	return list
}
