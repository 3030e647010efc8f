package upstreamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"junction/upstream/raw"
)

// declared returns the capabilities that the client declared: a legacy one in its handshake, a
// modern one in this request.
func (c *call) declared() []byte {
	if c.modern {
		v, _ := raw.Get(c.m.Params, "_meta", keyCapabilities)
		return v
	}
	c.se.mu.Lock()
	defer c.se.mu.Unlock()
	return c.se.capabilities
}

func (c *call) declares(path ...string) bool {
	_, err := raw.Get(c.declared(), path...)
	return err == nil
}

// lacks answers that the client must declare capabilities.
func (c *call) lacks(capabilities string) {
	c.fail(400, -32021, "Missing required client capability", []byte(`{"requiredCapabilities":`+capabilities+`}`))
}

// missing returns the capabilities that the client lacks to be asked this; "" when it may be asked.
func (c *call) missing(q Question) string {
	switch q.Method {
	case "elicitation/create":
		mode, _ := raw.Get(q.Params, "mode")
		switch form := c.declares("elicitation", "form") || c.declares("elicitation") &&
			!c.declares("elicitation", "url"); {
		case string(mode) == `"url"` && !c.declares("elicitation", "url"):
			return `{"elicitation":{"url":{}}}`
		case string(mode) != `"url"` && !form:
			return `{"elicitation":{}}`
		}
	case "sampling/createMessage":
		if _, err := raw.Get(q.Params, "tools"); err == nil && !c.declares("sampling", "tools") {
			return `{"sampling":{"tools":{}}}`
		} else if !c.declares("sampling") {
			return `{"sampling":{}}`
		}
	case "roots/list":
		if !c.declares("roots") {
			return `{"roots":{}}`
		}
	}
	return ""
}

// outOn returns the stream of the call, or the one for what belongs to no call.
func (c *call) outOn(on string) *stream {
	if on == "get" {
		return c.se.out
	}
	return c.out
}

// question puts the questions to the client, and answers with the answers.
func (c *call) question(ctx context.Context, a arguments) {
	if a.Questions == nil {
		a.Questions = []Question{{Method: a.Method, Params: a.Params}}
	}
	if c.modern && a.On == "" {
		c.require(a)
		return
	}
	if a.Gate != "" && !c.pause(ctx, arguments{Gate: a.Gate}) {
		return // cancelled
	}
	if executed := c.execute(); !a.mayAsk(c) {
		c.text("the client cannot be asked")
	} else if answers, err := c.request(ctx, a); errors.Is(err, errGaveUp) && a.Then == "die" {
		c.behave(ctx, "die", a)
	} else if errors.Is(err, errGaveUp) {
		c.text("gave up")
	} else if err == nil {
		c.answered(a, answers, executed)
	}
}

// mayAsk reports whether the client has declared that it can answer.
func (a *arguments) mayAsk(c *call) bool {
	for _, q := range a.Questions {
		if c.missing(q) != "" && !a.Always {
			return false
		}
	}
	return true
}

// execute counts that a tool does its work, and returns how often that was so far.
func (c *call) execute() int {
	c.s.state.Lock()
	defer c.s.state.Unlock()
	c.s.executed++
	return c.s.executed
}

// answered answers the call of a tool that has its answers.
func (c *call) answered(a arguments, answers [][]byte, executed int) {
	if a.Result != nil {
		c.answer(a.Result)
		return
	}
	c.structured(fmt.Appendf(nil, `{"answers":%s,"executions":%d}`, array(answers), executed))
}

// array makes a JSON array; what is nil is null.
func array(elements [][]byte) []byte {
	b := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		if e == nil {
			e = []byte("null")
		}
		b = append(b, e...)
	}
	return append(b, ']')
}

// errGaveUp says that the server did not wait for the answers.
var errGaveUp = errors.New("gave up")

// request puts the questions to the client as requests, one after the other or together, and
// returns each answer as {"result":…} or {"error":…}. The error is errGaveUp, or says that the call
// was cancelled.
func (c *call) request(ctx context.Context, a arguments) ([][]byte, error) {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	if a.GiveUp != "" {
		go func() {
			select {
			case <-c.s.gate(a.GiveUp):
				give(errGaveUp)
			case <-ctx.Done():
			}
		}()
	}
	var answers [][]byte
	batch := 1
	if a.Together {
		batch = len(a.Questions)
	}
	for questions := a.Questions; len(questions) > 0 || a.Endless; questions = questions[batch:] {
		if len(questions) == 0 {
			questions, answers = a.Questions, nil
		}
		got, err := c.requestTogether(ctx, a, questions[:batch])
		if errors.Is(err, errGaveUp) {
			c.s.add(Record{Verb: "GIVEUP", PID: os.Getpid()})
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, got...)
		c.step(a)
	}
	return answers, nil
}

// requestTogether puts all of the questions to the client before it waits for the first answer.
func (c *call) requestTogether(ctx context.Context, a arguments, questions []Question) ([][]byte, error) {
	var answers [][]byte
	var all []asked
	defer func() {
		for _, q := range all {
			c.s.withdraw(q)
		}
	}()
	for _, question := range questions {
		params := question.Params
		if a.related != "" {
			params = related(params, a.related)
		}
		q, err := c.s.put(c.outOn(a.On), question.Method, params)
		all = append(all, q)
		if err != nil {
			return nil, err
		}
	}
	for i, q := range all {
		m, err := c.s.answerTo(ctx, q)
		switch {
		case err != nil && context.Cause(ctx) == errGaveUp && a.Tell:
			for _, late := range all[i:] {
				c.outOn(a.On).notify("notifications/cancelled",
					fmt.Appendf(nil, `{"requestId":%s,"reason":"gave up"}`, late.id))
			}
			return nil, err
		case err != nil:
			return nil, err
		case m.Error != nil:
			answers = append(answers, append(m.Error.Append([]byte(`{"error":`)), '}'))
		default:
			answers = append(answers, append(append([]byte(`{"result":`), m.Result...), '}'))
		}
	}
	return answers, nil
}

// step sends a notification of progress after an answer, if the tool shall.
func (c *call) step(a arguments) {
	if token, err := raw.Get(c.m.Params, "_meta", "progressToken"); err == nil && a.Steps {
		c.steps++
		c.out.notify("notifications/progress", fmt.Appendf(nil, `{"progressToken":%s,"progress":%d}`, token, c.steps))
	}
}

// round is how far a modern call has come. It travels in the requestState, because nothing is
// remembered between two requests.
type round struct {
	waits   int      // rounds in which nothing was asked
	begun   int      // how often all questions were asked, less one
	answers [][]byte // nil: not there yet
}

// state is the requestState of the first round.
const state = "what the server wants to see again"

func (r *round) String() string {
	if r.waits == 0 && r.begun == 0 && !r.any() {
		return state
	}
	return fmt.Sprintf("%s %d %d %s", state, r.waits, r.begun, array(r.answers))
}

func (r *round) any() bool { return len(bytes.Join(r.answers, nil)) > 0 }

// parse reads what String wrote. It returns false for anything else.
func (r *round) parse(text string) bool {
	rest, ok := strings.CutPrefix(text, state)
	if !ok || rest == "" {
		return ok
	}
	parts := strings.SplitN(strings.TrimPrefix(rest, " "), " ", 3)
	if len(parts) != 3 {
		return false
	}
	var err, errBegun error
	r.waits, err = strconv.Atoi(parts[0])
	r.begun, errBegun = strconv.Atoi(parts[1])
	elements, errAnswers := raw.Elements([]byte(parts[2]))
	if len(elements) != len(r.answers) || errors.Join(err, errBegun, errAnswers) != nil {
		return false
	}
	for i, e := range elements {
		if string(e) != "null" {
			r.answers[i] = e
		}
	}
	return true
}

// require puts the questions to a modern client: the call is answered that input is required, and
// comes again with it.
func (c *call) require(a arguments) {
	r := &round{answers: make([][]byte, len(a.Questions))}
	given, errState := raw.Get(c.m.Params, "requestState")
	responses, errResponses := raw.Get(c.m.Params, "inputResponses")
	if first := errState != nil && errResponses != nil; !first {
		if a.Error != nil {
			if c.http != nil && a.Code != 0 {
				c.http.status = a.Code
			}
			c.refuse(a.Error)
			return
		}
		text, err := raw.String(given)
		switch {
		case a.State == "none" && errState == nil:
			c.fail(200, -32602, "a requestState although none was given", nil)
			return
		case a.State != "none" && (errState != nil || err != nil || !r.parse(text)):
			c.fail(200, -32602, "the requestState is not mine", nil)
			return
		}
	}
	for i, q := range a.Questions {
		if v, err := raw.Get(responses, q.key(i)); err == nil && r.answers[i] == nil {
			r.answers[i] = append(append([]byte(`{"result":`), v...), '}')
		}
	}
	if a.State == "only" {
		if r.waits++; a.Endless || r.waits <= a.N {
			c.answer(fmt.Appendf(nil, `{"resultType":"input_required","requestState":%s}`, raw.Quote(r.String())))
			return
		}
		c.answered(a, nil, c.execute())
		return
	}
	pending := a.pending(r)
	if len(pending) == 0 && a.Endless {
		r.begun++
		clear(r.answers)
		pending = a.pending(r)
	}
	if len(pending) == 0 {
		c.answered(a, r.answers, c.execute())
		return
	}
	var requests []string
	for _, i := range pending {
		q := a.Questions[i]
		if lacking := c.missing(q); lacking != "" && !a.Always {
			c.lacks(lacking)
			return
		}
		requests = append(requests, string(q.request(i)))
	}
	again := ""
	if a.State != "none" {
		again = `,"requestState":` + string(raw.Quote(r.String()))
	}
	c.answer(fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{%s}%s}`, strings.Join(requests, ","),
		again))
}

// pending returns the questions to ask now, by index: all that have no answer, or the first of
// them. Where nothing is remembered, those before an answer have had theirs.
func (a *arguments) pending(r *round) (list []int) {
	for i := len(r.answers) - 1; i >= 0; i-- {
		if r.answers[i] != nil && a.State == "none" && !a.Together {
			break
		}
		if r.answers[i] == nil {
			list = append([]int{i}, list...)
		}
	}
	if !a.Together && len(list) > 1 {
		list = list[:1]
	}
	return list
}

func (q *Question) key(i int) string {
	if q.Key != "" {
		return q.Key
	}
	return fmt.Sprint("q", i+1)
}

// request returns the question as a member of inputRequests.
func (q *Question) request(i int) []byte {
	b := append(raw.Quote(q.key(i)), `:{"method":`...)
	b = raw.AppendQuote(b, q.Method)
	if q.Params != nil {
		b = append(append(b, `,"params":`...), q.Params...)
	}
	return append(b, '}')
}

// visit refuses the call until a person was in a browser, which is when gate is open.
func (c *call) visit(a arguments) {
	if a.Elicitations == nil {
		a.Elicitations = []byte(`[{"mode":"url","elicitationId":"e-1",` +
			`"url":"https://example.com/e-1","message":"Sign in"}]`)
	}
	select {
	case <-c.s.gate(a.Gate):
		c.structured(fmt.Appendf(nil, `{"executions":%d}`, c.execute()))
		return
	default:
	}
	if c.modern && !a.Always {
		list, _ := raw.Elements(a.Elicitations)
		a.Questions, a.Together = nil, true
		for _, e := range list {
			e, _ = raw.Set(e, nil, "elicitationId") // 2026-07-28 has none
			a.Questions = append(a.Questions, Question{Method: "elicitation/create", Params: e})
		}
		a.Endless = true
		c.require(a)
		return
	}
	if !c.modern && !a.Always && !c.declares("elicitation", "url") {
		c.result(`"content":[{"type":"text","text":"a person must sign in first"}],"isError":true`)
		return
	}
	c.fail(200, -32042, "This request requires more information.",
		fmt.Appendf(nil, `{"elicitations":%s}`, a.Elicitations))
}

// interject puts a question to the client where it should not be. It returns false when the request
// is answered.
func (c *call) interject(ctx context.Context, q Question) bool {
	if c.modern {
		c.answer(fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{%s}}`, q.request(0)))
		return false
	}
	_, err := c.s.ask(ctx, c.out, q.Method, q.Params)
	return err == nil
}

// greet asks for the roots of a client as soon as there is a stream for it, once.
func (s *Server) greet(se *session) {
	if !s.script.AsksRoots || se.out == nil || !se.out.attached() {
		return
	}
	se.mu.Lock()
	_, err := raw.Get(se.capabilities, "roots")
	asks := se.initialized && !se.greeted && err == nil
	se.greeted = se.greeted || asks
	se.mu.Unlock()
	if asks {
		go s.ask(s.ctx, se.out, "roots/list", nil)
	}
}
