package upstreamtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"junction/upstream/raw"
)

// arguments are those of all behaviours. A tool whose name is no behaviour does what "do" says, and
// else echoes.
type arguments struct {
	Do string
	N  int // how many, or how large. Default 3
	MS int // milliseconds before the answer, or between the steps of progress and endless

	// what to wait for before the answer, before each step, or (ask, legacy) before the first
	// question; Release or the tool open opens it for one
	Gate   string
	What   string          // flood: log (default), garbage, stderr. endless: notifications (default), comments, line
	Then   string          // half: silence (default), die. ask: with giveUp, die
	On     string          // ask, log: call (default), get (the listening stream)
	Method string          // ask, tell. Default ping
	Params json.RawMessage // ask, tell; progress: an object whose members each notification has as well; log: the data
	Result json.RawMessage // progress, ask, task: the result verbatim
	Error  json.RawMessage // task: the error verbatim; ask, modern: the answer to answers, with the status code

	Questions []Question // ask, task; nil: method with params. One after the other unless
	Together  bool       // all at once
	Always    bool       // ask, url: whatever the client declared. log: whatever level it wants
	State     string     // ask, modern: none (no requestState), only (n times a requestState and no questions)
	Endless   bool       // ask: again and again
	GiveUp    string     // ask, legacy: the gate which, when it opens, lets the server answer without the answers
	Tell      bool       // with giveUp: cancels the questions that are out
	Steps     bool       // ask, legacy: progress after each answer
	related   string     // to this task

	Elicitations json.RawMessage // url: of the error; nil: one
	Levels       []string        // log: of one message each. Default info
	Logger       string          // log
	URI          string          // update
	Poll         int             // task: milliseconds between two questions about it. Default 10
	Required     bool            // task: refuses who cannot have one

	// set: the lists to change; nil: stays
	Prompts, Resources, Templates, Skills []json.RawMessage

	Late     bool // progress: once more after the result. hang: an answer although it was cancelled
	Unasked  bool // progress: with a token that no client gave
	Code     int  // die: exit code, 0 is 3. status, ask: HTTP status, 0 is 200
	Body     string
	Header   map[string]string
	Tools    []json.RawMessage // set, settools
	Names    []string          // whoami: of environment variables
	Stubborn string            // spawn: as in Script
}

// behaviours are the names of the tools that do something.
//
//	echo      result verbatim from arguments.result; without one, the arguments as text
//	fail      the JSON-RPC error verbatim from arguments.error
//	slow      an answer after ms milliseconds
//	gate      an answer once gate is open
//	open      opens gate
//	hang      no answer until it is cancelled; late: then all the same
//	progress  n notifications with the request's token and params, and an answer, which may be result; late, unasked
//	big       n bytes of text
//	die       exit with code, or a cut connection, in the middle
//	drop      cuts the connection and answers on the stream all the same, once gate is open
//	          (legacy HTTP; Resumable brings it back)
//	half      half a response, then what "then" says
//	flood     n times what, and an answer
//	endless   what, for ever: a line is one that never ends
//	deaf      an answer, after which nothing is read until gate is open (stdio)
//	status    an HTTP answer with code, header and body
//	ask       questions put to the client, by requests in the legacy era and by input_required in the
//	          modern one unless on is set; in structuredContent answers, each {"result":…} or
//	          {"error":…}, and executions, how often such tools have done their work. See also
//	          always, state, endless, giveUp
//	url       refused with -32042 and elicitations (modern: input_required) until gate is open
//	task      becomes a task, which asks questions once gate is open, and then has result, error, or the answers
//	log       a message of each of levels that the client wants
//	tell      method with params, a notification on the call's own stream
//	update    uri has changed, and subscribers hear it
//	set       tools, prompts, resources, templates become the lists, and listeners hear it
//	settools  tools become the list, and listeners hear it
//	capabilities  what the client declared: capabilities, clientInfo, protocolVersion
//	whoami    pid, dir, env (of names), header, session
//	spawn     a child process of the child process, which inherits standard output; its pid
//	count     how many calls of it the process has had
func behaviours() []string {
	return []string{"echo", "fail", "slow", "gate", "open", "hang", "progress", "big", "die", "drop", "half", "flood",
		"endless", "deaf", "status", "ask",
		"url", "task", "log", "tell", "update", "set", "settools", "capabilities", "whoami", "spawn", "count"}
}

// tool answers tools/call.
func (c *call) tool(ctx context.Context) {
	name := c.param("name")
	args, _ := raw.Get(c.m.Params, "arguments")
	definition := c.s.item("tools/list", "name", name)
	support, _ := raw.Get(definition, "execution", "taskSupport")
	_, err := raw.Get(c.m.Params, "task")
	switch {
	case definition == nil:
		c.fail(200, -32602, "Unknown tool: "+name, nil)
	case string(support) == `"required"` && err != nil && !c.modern && c.s.script.Tasks:
		c.fail(200, -32601, "The tool is called as a task", nil)
	default:
		c.do(ctx, name, args)
	}
}

// do does what the name of a behaviour says, or what the arguments do.
func (c *call) do(ctx context.Context, name string, args []byte) {
	if !slices.Contains(behaviours(), name) {
		v, _ := raw.Get(args, "do")
		name, _ = raw.String(v)
	}
	if name == "echo" || name == "" {
		if result, err := raw.Get(args, "result"); err == nil {
			c.answer(result)
		} else {
			c.text(string(args))
		}
		return
	}
	if name == "fail" {
		e, err := raw.Get(args, "error")
		if err != nil {
			e = []byte(`{"code":-32603,"message":"failed as asked"}`)
		}
		c.refuse(e)
		return
	}
	a := arguments{N: 3, Method: "ping"}
	if len(args) > 0 {
		if err := json.Unmarshal(args, &a); err != nil {
			c.fail(200, -32602, "arguments of "+name+": "+err.Error(), nil)
			return
		}
	}
	c.behave(ctx, name, a)
}

func (c *call) behave(ctx context.Context, name string, a arguments) {
	switch name {
	case "slow", "gate":
		if c.pause(ctx, a) {
			c.text("here it is")
		}
	case "open":
		c.s.Release(a.Gate)
		c.text("open")
	case "hang":
		<-ctx.Done()
		if a.Late {
			c.text("too late")
		}
	case "progress":
		c.progress(ctx, a)
	case "big":
		head, tail, _ := strings.Cut(string(c.response([]byte(`{"content":[{"type":"text","text":"|"}]}`))), "|")
		c.sendFrom(io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, int64(a.N)),
			strings.NewReader(tail)))
	case "die":
		if c.s.exit != nil {
			c.s.exit(cmp.Or(a.Code, 3))
		}
		c.out.die()
	case "drop":
		c.drop(ctx, a)
	case "half":
		c.half(ctx, a)
	case "flood":
		c.flood(a)
	case "endless":
		c.endless(ctx, a)
	case "deaf": // ServeStdio does the rest
		c.text("not listening any more")
	case "status":
		if c.http == nil {
			c.text("only on Streamable HTTP")
			return
		}
		c.http.refuse(a.Code, a.Header, a.Body)
	case "ask":
		c.question(ctx, a)
	case "url":
		c.visit(a)
	case "task":
		c.becomeTask(ctx, a)
	case "log":
		c.log(a)
	case "tell":
		c.outOn(a.On).notify(a.Method, a.Params)
		c.text("told")
	case "update":
		c.s.Updated(a.URI)
		c.text("updated")
	case "set":
		c.set(a)
	case "capabilities":
		c.whoIsClient()
	case "settools":
		c.s.SetTools(a.Tools)
		c.text("set")
	case "whoami":
		c.whoami(a)
	case "spawn":
		c.spawn(a)
	case "count":
		c.text(fmt.Sprint(c.s.counted.Add(1)))
	default:
		c.fail(200, -32602, "no such behaviour: "+name, nil)
	}
}

func (c *call) drop(ctx context.Context, a arguments) {
	if c.http == nil {
		c.text("only on Streamable HTTP")
		return
	}
	c.http.drop()
	if c.pause(ctx, a) {
		c.text("after the drop")
	}
}

func (c *call) half(ctx context.Context, a arguments) {
	c.out.half(c.response([]byte(`{"content":[{"type":"text","text":"the second half of this never comes"}]}`)))
	if a.Then == "die" {
		c.behave(ctx, "die", a)
		return
	}
	<-ctx.Done()
}

func (c *call) flood(a arguments) {
	for i := range a.N {
		switch a.What {
		case "garbage":
			c.out.garbage("this is not JSON-RPC")
		case "stderr":
			fmt.Fprintln(os.Stderr, "line", i, "of the flood")
		default:
			c.notify("notifications/message", `{"level":"info","logger":"flood","data":%d}`, i)
		}
	}
	c.text("flooded")
}

// pause waits for the gate and for the time that the arguments name. It returns false when ctx
// ended first.
func (c *call) pause(ctx context.Context, a arguments) bool {
	if a.Gate != "" {
		select {
		case <-c.s.gate(a.Gate):
			if ctx.Err() != nil { // the call was abandoned first, and the permit is for another one
				c.s.Release(a.Gate)
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
	timer := time.NewTimer(time.Duration(a.MS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *call) progress(ctx context.Context, a arguments) {
	token, err := raw.Get(c.m.Params, "_meta", "progressToken")
	if a.Unasked {
		token, err = []byte(`"not a token of a request"`), nil
	}
	step := func(i int) {
		if err == nil {
			more, _ := bytes.CutSuffix(bytes.TrimPrefix(a.Params, []byte("{")), []byte("}"))
			if len(more) > 0 {
				more = append([]byte(","), more...)
			}
			c.notify("notifications/progress",
				`{"progressToken":%s,"progress":%d,"total":%d,"message":"step %[2]d"%[4]s}`, token, i, a.N, more)
		}
	}
	for i := range a.N {
		if !c.pause(ctx, a) {
			return
		}
		step(i + 1)
	}
	if a.Result != nil {
		c.answer(a.Result)
	} else {
		c.text("done")
	}
	if a.Late {
		step(a.N + 1)
	}
}

func (c *call) endless(ctx context.Context, a arguments) {
	var err error
	if a.What == "line" {
		head, _, _ := strings.Cut(string(c.response([]byte(`{"content":[{"type":"text","text":"|"}]}`))), "|")
		c.out.send(io.MultiReader(strings.NewReader(head), untilDone{ctx, letters{}}), true)
		return
	}
	for i := 0; err == nil; i++ {
		if a.What == "comments" {
			err = c.out.bytes(": still here\n\n")
		} else {
			err = c.notify("notifications/message", `{"level":"info","logger":"endless","data":%d}`, i)
		}
		if a.MS == 0 && ctx.Err() == nil {
			continue
		}
		if !c.pause(ctx, arguments{MS: a.MS}) {
			return
		}
	}
}

// set changes the lists that the arguments have.
func (c *call) set(a arguments) {
	for _, list := range []struct {
		method string
		items  []json.RawMessage
	}{{"tools/list", a.Tools}, {"prompts/list", a.Prompts}, {"resources/list", a.Resources},
		{"resources/templates/list", a.Templates}, {"skills/list", a.Skills}} {
		if list.items != nil {
			c.s.Set(list.method, list.items)
		}
	}
	c.text("set")
}

// whoIsClient says what the client declared: in its handshake, or in this request.
func (c *call) whoIsClient() {
	c.se.mu.Lock()
	version, info := raw.Quote(c.se.version), c.se.clientInfo
	c.se.mu.Unlock()
	if c.modern {
		version, _ = raw.Get(c.m.Params, "_meta", keyVersion)
		info, _ = raw.Get(c.m.Params, "_meta", keyClient)
	}
	c.structured(fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":%s,"clientInfo":%s}`, version,
		cmp.Or(string(c.declared()), "null"), cmp.Or(string(info), "null")))
}

func (c *call) whoami(a arguments) {
	dir, _ := os.Getwd()
	env := map[string]string{}
	for _, name := range a.Names {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	me := map[string]any{"pid": os.Getpid(), "dir": dir, "env": env, "session": c.se.id}
	if c.http != nil {
		me["header"] = maps.Clone(c.http.r.Header)
	}
	c.structured(mustJSON(me))
}

// spawn starts a process like ours that holds on to our standard output, as the servers behind npx
// and uvx do. No process waits for it.
func (c *call) spawn(a arguments) {
	if c.s.exit == nil {
		c.fail(200, -32603, "spawn is for a server in a process of its own", nil)
		return
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), scriptVariable+"="+
		string(mustJSON(Script{Stubborn: a.Stubborn, Report: c.s.script.Report})))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		c.fail(200, -32603, "spawn: "+err.Error(), nil)
		return
	}
	c.structured(fmt.Appendf(nil, `{"pid":%d}`, cmd.Process.Pid))
}

// letters is an endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a' + byte(i%26)
	}
	return len(p), nil
}

// untilDone ends a reader with the context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
