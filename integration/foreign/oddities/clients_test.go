package oddities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
)

// This file has the clients of Junction: they list and call, as the reference clients do directly.

// kindsOfClient are the clients of Junction, by their era and what they change of it.
var kindsOfClient = map[string]struct{ era, version string }{
	"legacy":             {harness.LegacyEra, ""},
	"modern":             {harness.ModernEra, ""},
	"legacy-with-header": {harness.LegacyEra, harness.ModernVersion}, // the header of the other era
	"modern-with-header": {harness.ModernEra, harness.LegacyVersion},
}

// clients returns the kinds of clients that share a server. Where the server answers anew from a time
// of asking on, each client has a server of its own.
func (r *row) clients() [][]string {
	all := r.Clients
	if len(all) == 0 {
		all = harness.BothEras()
	}
	if !slices.ContainsFunc(r.Script, func(r rule) bool { return r.At != "" || r.Then == "lose" || r.Then == "close" }) {
		return [][]string{all}
	}
	var own [][]string
	for _, kind := range all {
		own = append(own, []string{kind})
	}
	return own
}

// endpoint is the endpoint of the file for a row, if it has one.
func (o *odd) endpoint() string {
	if o.Endpoint == "" {
		return ""
	}
	return fmt.Sprintf("  %[1]s: {upstreams: [%[1]s], eras: %[2]s}\n", o.name(), o.Endpoint)
}

// declared are the capabilities of the clients. Junction does not know the extension.
var declared = strings.Replace(harness.AllCapabilities, `"extensions":{`, `"extensions":{"`+extension+`":{},`, 1)

const extension = "com.example/strange"

// versionHeader sends another protocol version than that of the client.
type versionHeader struct {
	http.RoundTripper
	version string
}

func (h versionHeader) RoundTrip(q *http.Request) (*http.Response, error) {
	if h.version != "" {
		q = q.Clone(q.Context())
		q.Header.Set("Mcp-Protocol-Version", h.version)
	}
	return h.RoundTripper.RoundTrip(q)
}

// user is a client of Junction that lists and calls.
type user struct {
	*harness.Caller
	tools string // the prefix of the names of tools
	notes []string
}

// newUser connects a client.
func (o *odd) newUser(t testing.TB, p *harness.Program, kind string) (*user, error) {
	u, url, of := &user{}, p.URL+"/"+o.name(), kindsOfClient[kind]
	if o.Endpoint != "" {
		url, u.tools = strings.TrimSuffix(p.URL, "/mcp")+"/"+o.name()+"/mcp", o.name()+"__"
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	u.Caller, err = harness.NewCaller(t.Context(), &http.Client{Transport: versionHeader{transport, of.version}}, url,
		of.era, declared)
	if err != nil {
		return nil, err
	}
	u.Heard = func(text string) { u.hear(t.Context(), text) }
	return u, nil
}

// hear answers a request of a server, and notes the notifications that are no part of MCP.
func (u *user) hear(ctx context.Context, text string) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal([]byte(text), &m) // the answer to the request is read elsewhere
	switch {
	case m.Method == "":
	case m.ID == nil && strings.HasPrefix(m.Method, "notifications/strange"):
		u.notes = append(u.notes, m.Method)
	case m.ID != nil:
		resp, err := u.Post(ctx, "", "", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+cmp.Or(replies[m.Method], "{}")+`}`)
		if err == nil {
			resp.Body.Close()
		}
	}
}

// replies are what clients answer to requests of a server.
var replies = map[string]string{
	"elicitation/create":     `{"action":"accept","content":{}}`,
	"sampling/createMessage": `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`,
	"roots/list":             `{"roots":[]}`,
}

// done is what a client has got of a server.
type done struct {
	Tools   []string `json:"tools"`
	Answers []string `json:"answers"`
	Notes   []string `json:"notes"` // the notifications that are no part of MCP
	Error   string   `json:"error"`
}

// outcome compares it with that of a server without faults.
func (d done) outcome() outcome {
	tools := strings.Join(slices.Sorted(slices.Values(d.Tools)), " ")
	answers := strings.Join(append(slices.Compact(d.Answers), d.Notes...), "; ")
	switch {
	case d.Error != "":
		return outcome(fails + ": " + d.Error)
	case tools == "echo" && answers == "hello":
		return works
	}
	return outcome(fmt.Sprintf("%s: %s: %s", works, cmp.Or(tools, "no tools"), answers))
}

// through lists and calls as one client of Junction.
func (o *odd) through(t testing.TB, p *harness.Program, kind string) (d done, err error) {
	c, err := o.newUser(t, p, kind)
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	wait := func() error {
		select {
		case <-again.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// The list is offered a moment after it was read, and the tools of one era after those of the other.
	offers := o.lists || o.Want == works
	for d.Tools, err = c.listed(ctx); err == nil && len(d.Tools) == 0 && offers; d.Tools, err = c.listed(ctx) {
		if err := wait(); err != nil {
			return d, err
		}
	}
	if err != nil || len(d.Tools) == 0 && o.Call == "" {
		return d, err
	}
	// A server that has lost its session works again a moment later.
	moment := harness.Promptly
	if o.Open != "" || o.Junction == fails {
		moment = time.Second
	}
	enough := time.After(moment)
	for range o.Calls {
		text, err := o.call(ctx, c, d.Tools)
		for ; err != nil && o.Again; text, err = o.call(ctx, c, d.Tools) {
			select {
			case <-again.C:
				continue
			case <-enough:
			}
			break
		}
		if err != nil {
			return d, err
		}
		d.Answers = append(d.Answers, text)
	}
	// The change of a list is read a moment after it was announced.
	for o.Relist > 0 && len(d.Tools) != o.Relist {
		if err := wait(); err != nil {
			return d, fmt.Errorf("the list stays: %w", err)
		}
		if d.Tools, err = c.listed(ctx); err != nil {
			return d, err
		}
	}
	d.Notes = c.notes
	return d, nil
}

// call does what the row calls.
func (o *odd) call(ctx context.Context, c *user, tools []string) (string, error) {
	if o.Call == "" {
		return c.call(ctx, tools[0])
	}
	method, params, _ := strings.Cut(o.Call, " ")
	return c.ask(ctx, method, params)
}

// listed lists the tools.
func (u *user) listed(ctx context.Context) (tools []string, err error) {
	list, err := u.Do(ctx, "tools/list", "", "", "")
	if err != nil {
		return nil, err
	}
	var page struct {
		Result *struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(list.Answer), &page); err != nil || page.Result == nil {
		return nil, fmt.Errorf("tools/list: %v: %s", err, list.Answer)
	}
	for _, tool := range page.Result.Tools {
		tools = append(tools, strings.TrimPrefix(tool.Name, u.tools))
	}
	return tools, nil
}

// call calls a tool. The answer of a tool that fails begins with error.
func (u *user) call(ctx context.Context, tool string) (string, error) {
	x, err := u.rounds(ctx, "tools/call", u.tools+tool, `"name":"`+u.tools+tool+`","arguments":{}`)
	if err != nil {
		return "", err
	}
	var answer struct {
		Result *struct{ Content, IsError any }
		Error  struct{ Message string }
	}
	if err := json.Unmarshal([]byte(x.Answer), &answer); err != nil {
		return "", fmt.Errorf("tools/call: %w: %s", err, x.Answer)
	}
	if answer.Result == nil {
		return "", errors.New(answer.Error.Message)
	}
	text := ""
	parts, _ := answer.Result.Content.([]any) // other content has no text
	for _, part := range parts {
		if part, ok := part.(map[string]any); ok && part["text"] != nil {
			text += fmt.Sprint(part["text"])
		}
	}
	if answer.Result.IsError == true {
		text = "error: " + text
	}
	return text, nil
}

// rounds sends a request, and for a modern client again with the answers to what it was asked.
func (u *user) rounds(ctx context.Context, method, name, members string) (x harness.Exchanged, err error) {
	base := members
	for range 10 {
		if x, err = u.Do(ctx, method, name, members, ""); err != nil {
			return x, err
		}
		var answer struct {
			Result struct {
				ResultType    string
				RequestState  string
				InputRequests map[string]struct{ Method string }
			}
		}
		if json.Unmarshal([]byte(x.Answer), &answer) != nil || answer.Result.ResultType != "input_required" {
			return x, nil // whoever reads the answer says what is wrong with it
		}
		responses := map[string]json.RawMessage{}
		for key, asked := range answer.Result.InputRequests {
			responses[key] = json.RawMessage(cmp.Or(replies[asked.Method], "{}"))
		}
		text, err := json.Marshal(responses)
		if err != nil {
			return x, err
		}
		members = base + `,"inputResponses":` + string(text)
		if state := answer.Result.RequestState; state != "" {
			members += `,"requestState":` + strconv.Quote(state)
		}
	}
	return x, fmt.Errorf("%s: the questions do not end: %s", method, x.Answer)
}

// ask sends a request. Its result is one text without the members that every result may have.
func (u *user) ask(ctx context.Context, method, params string) (string, error) {
	var name struct{ URI, Name string }
	if err := json.Unmarshal([]byte(params), &name); err != nil {
		return "", err
	}
	members := strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")
	x, err := u.rounds(ctx, method, cmp.Or(name.Name, name.URI), members)
	if err != nil {
		return "", err
	}
	var answer struct {
		Result map[string]any
		Error  struct{ Message string }
	}
	if err := json.Unmarshal([]byte(x.Answer), &answer); err != nil {
		return "", fmt.Errorf("%s: %w: %s", method, err, x.Answer)
	}
	if answer.Result == nil {
		return "", errors.New(answer.Error.Message)
	}
	for _, every := range []string{"_meta", "resultType", "ttlMs", "cacheScope"} {
		delete(answer.Result, every)
	}
	text, err := json.Marshal(answer.Result)
	return string(text), err
}
