package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/remedy"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Report is the result of a check of an upstream.
type Report struct {
	Steps  []Step // the steps that were made, in order
	Err    error  // why the last step failed; nil if all steps succeeded
	Advice string // what to do about Err; "" if that is not known
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
}

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
	r := check(ctx, u.name, u.connConfig, u.options, nil)
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
		return p.shown(c.Ping(ctx))
	}
	if q := l.suspicion.raise(c); q != nil { // else it was asked just before
		pace.Sleep(ctx, p.connConfig.ConnectTimeout, q.done)
	}
	return nil
}

// Check checks an entry whose upstream does not run. It opens a connection with the resources of the
// Set, and returns after that connection is closed.
func (s *Set) Check(ctx context.Context, name string, c Config, o Options) Report {
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
	return check(ctx, name, c.withDefaults(o.Defaults).connConfig(), o, nil)
}

// check checks an upstream over a connection of its own. conns has the HTTP connections; nil makes a
// pool.
func check(ctx context.Context, name string, config Config, o Options, conns *transport.Pool) (r Report) {
	p := &pool{name: name, connConfig: config, options: o, log: o.Log.With("upstream", name, "check", true),
		checks: newChecks(int(o.MessageLimit))}
	dialing := p.dialOptions()
	dialing.Pool = conns
	if o.Credentials == nil {
		dialing.Token = nil
	}
	if config.Sandbox != nil {
		r.Sandbox = config.Sandbox.Enforcement(o.kernel())
	}
	began := time.Now()
	step := func(name string) {
		now := time.Now()
		r.Steps = append(r.Steps, Step{name, now.Sub(began)})
		began = now
	}
	next := "handshake"
	if config.Kind().Process {
		next = "start"
		dialing.Opened = func() {
			if next == "start" {
				step(next)
				next = "handshake"
			}
		}
	}
	limit, cancel := context.WithTimeoutCause(ctx, config.ConnectTimeout, fmt.Errorf("%w within %v (connect_timeout)",
		errLate, config.ConnectTimeout))
	defer cancel()
	fail := func(err error) Report {
		late := errors.Is(limit.Err(), context.DeadlineExceeded)
		noise := errors.As(err, new(*stdio.NoiseError)) // it has the cause already
		if late && !noise && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(limit))) {
			err = fmt.Errorf("%w: %w", errLate, context.Cause(limit))
			if errors.Is(context.Cause(limit), errLate) {
				err = context.Cause(limit)
			}
		}
		step(next)
		var others []string
		both, more := errors.AsType[*client.RejectedError](err)
		for ; more; both, more = errors.AsType[*client.RejectedError](both.Err) {
			others = append(others, both.Method+": "+p.shown(both.Other).Error())
		}
		r.Other = strings.Join(others, "; ")
		_, err = p.lacking(err)
		r.Err, r.Advice = p.shown(err), advice(err, name, &config)
		return r
	}
	if config.Blocked != "" {
		next = "reading the entry"
		return fail(errors.New(config.Blocked))
	}
	if err := p.mayDial(limit); err != nil {
		return fail(err)
	}
	d := client.NewDialer(dialing)
	defer d.CloseIdle()
	var err error
	profile, hooks := p.reading().profile, client.Hooks{Changed: func() {}}
	var c opened
	if c.Conn, err = d.Dial(limit, profile, hooks); err != nil {
		return fail(err)
	}
	defer func() { c.Close() }()
	step(next)
	r.meet(c.Info())

	next = "list"
	if c.catalog, err = p.listAll(limit, c, &Catalog{}); err != nil {
		return fail(err)
	}
	if other := p.askLegacy(limit, d, profile, hooks, c.catalog); other.catalog != nil {
		c.discard()
		c = other
		r.meet(c.Info())
	}
	step(next)
	defer c.catalog.free() // the report stays for a short time
	r.look(c.catalog)

	next = "ping"
	if err := c.Ping(limit); err != nil {
		return fail(err)
	}
	step(next)
	r.Latency = r.Steps[len(r.Steps)-1].Took
	return r
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

// advice returns what the operator can do about an upstream that cannot be reached.
func advice(err error, upstream string, c *Config) string {
	var (
		confined *stdio.SandboxError
		lookup   *net.DNSError
		status   *transport.StatusError
		exit     *stdio.ExitError
		noise    *stdio.NoiseError
	)
	switch {
	case errors.As(err, &confined) && confined.Permanent:
		return "run Junction where the kernel can enforce it, or remove require: true to start the command without " +
			"a part of its sandbox"
	case errors.As(err, &confined): // the error says what to do
		return ""
	case errors.As(err, new(*LackError)): // the error says what to do
		return ""
	case errors.As(err, &status):
		return adviceOfStatus(status, upstream, c)
	case errors.Is(err, stdio.ErrNoProgram):
		return c.ForProgram()
	case errors.Is(err, fs.ErrNotExist):
		return c.forMissing()
	case errors.Is(err, fs.ErrPermission) && c.Sandbox != nil:
		return "let Junction run that program: chmod +x, or another user; if it can, name the folder of the " +
			"program, or of its interpreter, in sandbox.read"
	case errors.Is(err, fs.ErrPermission):
		return "Junction may not run that program: " + ForMode
	case errors.As(err, &exit) && exit.Killed:
		return "another program or the system has killed the process; if this machine lacks memory, the log of the " +
			"system says so"
	case errors.As(err, &exit) && remedyOf(exit, c) != "":
		return remedyOf(exit, c)
	case errors.As(err, &exit) && c.Sandbox != nil:
		return "run the command by hand; if it works there, its sandbox denies what it needs: name files in " +
			"sandbox.read and sandbox.write, ports in sandbox.tcp"
	case errors.As(err, &exit):
		return "run the command by hand and read its output: it must wait for MCP on its standard input"
	case errors.As(err, &noise):
		return adviceOfNoise[noise.Kind]
	case errors.Is(err, errLate) || errors.Is(err, errNoConnection) || errors.Is(err, context.DeadlineExceeded):
		if c.Kind().Process && remedy.Installs(c.Program()) {
			return c.Kind().Downloads
		}
		return c.Kind().Silent
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there: start it, or check host and port of url"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "the server does not speak TLS at this port: write http:// in url if it is meant to, or correct the port"
	case c.Kind().Closed != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET)):
		return c.Kind().Closed
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "the host does not exist: check url"
	case errors.As(err, &lookup):
		return "this machine cannot look up names now: check its network and its name server"
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)),
		errors.As(err, new(x509.CertificateInvalidError)):
		return "this machine does not trust the server's certificate: check the host in url, or install its CA " +
			"(SSL_CERT_FILE names a file of them)"
	case errors.As(err, new(*transport.MemoryError)) && !errors.Is(err, transport.ErrInvalid):
		return "have the server list less, or raise limits.bodies"
	case errors.As(err, new(*jsonrpc.Error)):
		return "this is an error of the server: read its log or documentation"
	case errors.Is(err, transport.ErrInvalid):
		return "the server violates the protocol: update it, or choose another era"
	}
	return ""
}

// adviceOfNoise is the advice about a server that writes something else than messages.
var adviceOfNoise = map[stdio.Noise]string{
	stdio.NoiseText: "start the server for MCP over stdio, which may need an argument such as stdio; its log " +
		"belongs to its standard error",
	stdio.NoiseFramed:   "update the server, or report it to its author: messages of MCP over stdio have no header",
	stdio.NoiseIndented: "have the server write each message in one line, without line breaks and indentation",
}

// adviceOfStatus returns what the operator can do about an HTTP status.
func adviceOfStatus(status *transport.StatusError, upstream string, c *Config) string {
	scopes, _ := status.Lacks()
	set := false
	for name := range c.Headers {
		set = set || strings.EqualFold(name, "Authorization")
	}
	mode := c.Auth.Mode.Row()
	asked, asks := askedMode(status)
	switch code := status.Status; {
	case asks && mode.Owner == OwnerNobody:
		return asked.About(asked.Suggest, upstream)
	case code == 403 && len(scopes) > 0:
		return fill(mode.Advice.Lacks, upstream, scopes)
	case (code == 401 || code == 403) && set:
		return "the server rejects the header Authorization: replace the token, which may have expired or lack a " +
			"permission"
	case code == 401:
		return mode.About(mode.Advice.Refused, upstream)
	case code == 403:
		return "the server requires authentication: " + mode.About(mode.Advice.Set, upstream)
	case code == 404 || code == 405:
		return "the path of url is probably wrong; common paths are /mcp and /sse"
	case code == 429:
		return "the server limits the rate of requests: Junction tries again by itself; others who use the same " +
			"token or address may share the limit"
	case code/100 == 3 && status.RedirectsToSignIn():
		return "the server requires authentication: " + mode.About(mode.Advice.Set, upstream) +
			"; if it does not offer MCP at this address, correct url"
	case status.HasResult:
		return "the server violates HTTP: a result needs the status 200; update the server, or report it to its author"
	case code >= 500:
		return "the server failed: read its log"
	case code/100 == 2:
		return "the url leads to a web page, not to an MCP server: check the path of url"
	}
	return "check url and headers"
}

// remedyOf returns what the last output of a command tells about its end; "" if it tells nothing.
func remedyOf(exit *stdio.ExitError, c *Config) string {
	return remedy.Of(&remedy.Process{Command: c.Command, Env: c.Env, Stderr: exit.Stderr, Ours: func(name string) bool {
		_, there := os.LookupEnv(name)
		return there
	}})
}

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
