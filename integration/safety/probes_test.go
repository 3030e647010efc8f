package safety

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The canary of the probes, and the policy that redacts it. A number is found as it is written. The
// canary is no secret of the harness, because the log has it for the caller without redaction.
const (
	canary       = "leaked-probe-7f3a"
	canaryNumber = "4111111111111111"
	guardedRules = `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: guarded, match: { key: guarded },
    redact: [ { name: canary, re: "leaked-[a-z]+-[0-9a-z]+" }, { name: card, re: "[0-9]{16}" } ] }
`
)

// probe is a place in which a server may put a text that the client must not read. CANARY stands for
// the text.
type probe struct{ place, method, params, meta string }

// results are places in the result of a tool call, verbatim.
var results = map[string]string{
	"text":                        `"content":[{"type":"text","text":"a CANARY b"}]`,
	"escaped text":                `"content":[{"type":"text","text":"\u0043ANARY"}]`,
	"JSON in a text":              `"content":[{"type":"text","text":"{\"a\":\"CANARY\"}"}]`,
	"type of a block":             `"content":[{"type":"CANARY","text":"x"}]`,
	"unknown member of a block":   `"content":[{"type":"text","text":"x","CANARY":1}]`,
	"uri of a link":               `"content":[{"type":"resource_link","name":"x","uri":"https://x.org/?key=CANARY"}]`,
	"name of a link":              `"content":[{"type":"resource_link","name":"CANARY","uri":"x:y"}]`,
	"title of a link":             `"content":[{"type":"resource_link","name":"x","title":"CANARY","uri":"x:y"}]`,
	"description of a link":       `"content":[{"type":"resource_link","name":"x","description":"CANARY","uri":"x:y"}]`,
	"mimeType of a link":          `"content":[{"type":"resource_link","name":"x","mimeType":"text/CANARY","uri":"x:y"}]`,
	"icon of a link":              `"content":[{"type":"resource_link","name":"x","uri":"x:y","icons":[{"src":"https://x.org/CANARY"}]}]`,
	"sizes of an icon":            `"content":[{"type":"resource_link","name":"x","uri":"x:y","icons":[{"src":"x:y","sizes":["CANARY"]}]}]`,
	"url of a block":              `"content":[{"type":"text","text":"x","url":"https://x.org/CANARY"}]`,
	"uri of an embedded resource": `"content":[{"type":"resource","resource":{"uri":"x:CANARY","text":"x"}}]`,
	"text of an embedded one":     `"content":[{"type":"resource","resource":{"uri":"x:y","text":"CANARY"}}]`,
	"blob that is text":           `"content":[{"type":"resource","resource":{"uri":"x:y","blob":"no base64: CANARY"}}]`,
	"data of an image, as text":   `"content":[{"type":"image","mimeType":"image/png","data":"no base64: CANARY"}]`,
	"data of a text":              `"content":[{"type":"text","text":"x","data":"CANARY"}]`,
	"mimeType of an image":        `"content":[{"type":"image","mimeType":"CANARY","data":"AAAA"}]`,
	"audience":                    `"content":[{"type":"text","text":"x","annotations":{"audience":["user","CANARY"]}}]`,
	"lastModified":                `"content":[{"type":"text","text":"x","annotations":{"lastModified":"CANARY"}}]`,
	"annotation":                  `"content":[{"type":"text","text":"x","annotations":{"CANARY":1}}]`,
	"_meta of a block":            `"content":[{"type":"text","text":"x","_meta":{"a":"CANARY"}}]`,
	"failed call":                 `"content":[{"type":"text","text":"CANARY"}],"isError":true`,
	"structured value":            `"content":[],"structuredContent":{"a":{"b":["CANARY"]}}`,
	"structured name":             `"content":[],"structuredContent":{"a":{"CANARY":1}}`,
	"structured names":            `"content":[],"structuredContent":{"CANARY":1,"CANARYb":2}`,
	"structured uri":              `"content":[],"structuredContent":{"uri":"x:CANARY","type":"CANARY","method":"CANARY"}`,
	"structured data":             `"content":[],"structuredContent":{"type":"image","data":"CANARY"}`,
	"structured number":           `"content":[],"structuredContent":{"n":[NUMBER]}`,
	"number in a block":           `"content":[{"type":"text","text":"x","n":NUMBER}]`,
	"_meta":                       `"content":[],"_meta":{"a":"CANARY"}`,
	"name in _meta":               `"content":[],"_meta":{"CANARY":1}`,
	"progressToken in _meta":      `"content":[],"_meta":{"progressToken":"CANARY"}`,
	"URI in _meta":                `"content":[],"_meta":{"ui":{"resourceUri":"ui://CANARY"}}`,
	"template in _meta":           `"content":[],"_meta":{"openai/outputTemplate":"ui://CANARY"}`,
	"subscription in _meta":       `"content":[],"_meta":{"io.modelcontextprotocol/subscriptionId":"CANARY"}`,
	"task in _meta":               `"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"CANARY"}}`,
	"unknown member":              `"content":[],"other":"CANARY"`,
	"unknown name":                `"content":[],"CANARY":1`,
	"taskId":                      `"content":[],"taskId":"CANARY"`,
	"requestState":                `"content":[],"requestState":"CANARY"`,
	"nextCursor":                  `"content":[],"nextCursor":"CANARY"`,
	"status":                      `"content":[],"status":"CANARY","level":"CANARY","mode":"CANARY","method":"CANARY"`,
	"JSON Schema words":           `"content":[],"required":["CANARY"],"enum":["CANARY"],"const":"CANARY","format":"CANARY"`,
}

// failures are places in the error of a tool call, verbatim.
var failures = map[string]string{
	"message of an error":     `"code":7,"message":"no CANARY"`,
	"data of an error":        `"code":7,"message":"x","data":"CANARY"`,
	"uri of an error":         `"code":7,"message":"x","data":{"uri":"x:CANARY"}`,
	"name in an error":        `"code":7,"message":"x","data":{"CANARY":1}`,
	"number in an error":      `"code":7,"message":"x","data":{"n":NUMBER}`,
	"requestId of an error":   `"code":7,"message":"x","data":{"requestId":"CANARY"}`,
	"error about the hop":     `"code":-32600,"message":"no CANARY"`,
	"url of a required page":  `"code":-32042,"message":"x","data":{"elicitations":[{"mode":"url","message":"x","url":"https://x.org/CANARY","elicitationId":"1"}]}`,
	"text of a required page": `"code":-32042,"message":"x","data":{"elicitations":[{"mode":"url","message":"CANARY","url":"https://x.org","elicitationId":"1"}]}`,
}

// questions are places in server requests.
var questions = map[string]string{
	"message of a form":       `{"method":"elicitation/create","params":{"message":"CANARY","requestedSchema":{"type":"object","properties":{}}}}`,
	"title of a field":        `{"method":"elicitation/create","params":{"message":"x","requestedSchema":{"type":"object","properties":{"n":{"type":"string","title":"CANARY"}}}}}`,
	"name of a field":         `{"method":"elicitation/create","params":{"message":"x","requestedSchema":{"type":"object","properties":{"CANARY":{"type":"string"}}}}}`,
	"choice of a field":       `{"method":"elicitation/create","params":{"message":"x","requestedSchema":{"type":"object","properties":{"n":{"type":"string","enum":["CANARY"]}}}}}`,
	"default of a field":      `{"method":"elicitation/create","params":{"message":"x","requestedSchema":{"type":"object","properties":{"n":{"type":"string","default":"CANARY"}}}}}`,
	"url of a page":           `{"method":"elicitation/create","params":{"mode":"url","message":"x","url":"https://x.org/CANARY","elicitationId":"1"}}`,
	"elicitationId":           `{"method":"elicitation/create","params":{"mode":"url","message":"x","url":"https://x.org","elicitationId":"CANARY"}}`,
	"member of a form":        `{"method":"elicitation/create","params":{"message":"x","CANARY":1,"requestedSchema":{"type":"object","properties":{}}}}`,
	"message of a sampling":   `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"CANARY"}}],"maxTokens":1}}`,
	"role of a sampling":      `{"method":"sampling/createMessage","params":{"messages":[{"role":"CANARY","content":{"type":"text","text":"x"}}],"maxTokens":1}}`,
	"prompt of a sampling":    `{"method":"sampling/createMessage","params":{"messages":[],"systemPrompt":"CANARY","maxTokens":1}}`,
	"metadata of a sampling":  `{"method":"sampling/createMessage","params":{"messages":[],"metadata":{"CANARY":1},"maxTokens":1}}`,
	"hint of a sampling":      `{"method":"sampling/createMessage","params":{"messages":[],"modelPreferences":{"hints":[{"name":"CANARY"}]},"maxTokens":1}}`,
	"arguments of a tool use": `{"method":"sampling/createMessage","params":{"messages":[{"role":"assistant","content":{"type":"tool_use","id":"1","name":"x","input":{"CANARY":1}}}],"maxTokens":1}}`,
}

// notes are places in notifications, as params of notifications/message.
var notes = map[string]string{
	"data of a log message":        `{"level":"error","data":"CANARY"}`,
	"uri in a log message":         `{"level":"error","data":{"uri":"x:CANARY"}}`,
	"name in a log message":        `{"level":"error","data":{"CANARY":1}}`,
	"number in a log message":      `{"level":"error","data":NUMBER}`,
	"logger":                       `{"level":"error","logger":"CANARY","data":1}`,
	"unknown member of a message":  `{"level":"error","data":1,"CANARY":1}`,
	"_meta of a log message":       `{"level":"error","data":1,"_meta":{"CANARY":1}}`,
	"progressToken of a message":   `{"level":"error","data":1,"progressToken":"CANARY"}`,
	"image in the data of a log":   `{"level":"error","data":{"type":"image","data":"CANARY"}}`,
	"structured words in the data": `{"level":"error","data":{"status":"CANARY","type":"CANARY"}}`,
}

// probes returns all probes that a client makes with a request.
func probes() []probe {
	list := []probe{
		{"progress", "tools/call", `"name":"up__progress","arguments":{"n":1,"params":{"message":"CANARY"}}`, `"progressToken":"t"`},
		{"member of a progress", "tools/call", `"name":"up__progress","arguments":{"n":1,"params":{"CANARY":"x"}}`, `"progressToken":"t"`},
		{"uri of a progress", "tools/call", `"name":"up__progress","arguments":{"n":1,"params":{"uri":"x:CANARY"}}`, `"progressToken":"t"`},
		{"_meta of a progress", "tools/call", `"name":"up__progress","arguments":{"n":1,"params":{"_meta":{"progressToken":"CANARY"}}}`, `"progressToken":"t"`},
		{"prompt", "prompts/get", `"name":"up__words"`, ""},
		{"link in a prompt", "prompts/get", `"name":"up__link"`, ""},
		{"resource", "resources/read", `"uri":"mcp://up/x:words"`, ""},
		{"uri of a resource", "resources/read", `"uri":"mcp://up/x:uri"`, ""},
		{"completion", "completion/complete", `"ref":{"type":"ref/prompt","name":"up__words"},"argument":{"name":"x","value":""}`, ""},
		{"list of tools", "tools/list", "", ""},
		{"list of prompts", "prompts/list", "", ""},
		{"list of resources", "resources/list", "", ""},
		{"list of templates", "resources/templates/list", "", ""},
	}
	call := func(place, tool, arguments string) {
		list = append(list, probe{place, "tools/call", `"name":"up__` + tool + `","arguments":` + arguments, `"io.modelcontextprotocol/logLevel":"debug"`})
	}
	for place, result := range results {
		call(place, "echo", `{"result":{`+result+`}}`)
		call("cached: "+place, "reused", `{"result":{`+result+`}}`)
	}
	for place, e := range failures {
		call(place, "fail", `{"error":{`+e+`}}`)
	}
	for place, q := range questions {
		call(place, "ask", `{"questions":[`+q+`],"always":true}`)
	}
	for place, params := range notes {
		call(place, "tell", `{"method":"notifications/message","params":`+params+`}`)
	}
	return list
}

// leaky is a server whose items have the canary in all places of a definition. Those whose name or
// URI is the canary are of no use in a list.
func leaky() upstreamtest.Script {
	filled := func(text string) json.RawMessage { return json.RawMessage(withCanary(text)) }
	tools := append(harness.Definitions("echo", "fail", "ask", "tell", "progress"),
		filled(`{"name":"reused","description":"CANARY","inputSchema":{"type":"object","title":"CANARY","properties":{"result":{"default":"CANARY"},"CANARY":{"type":"string","enum":["CANARY"],"examples":[NUMBER]}},"required":[]},"annotations":{"title":"CANARY","readOnlyHint":true,"idempotentHint":true},"icons":[{"src":"x:CANARY"}],"_meta":{"CANARY":1},"CANARY":1}`),
		filled(`{"name":"of_CANARY","inputSchema":{"type":"object"}}`))
	contents := map[string]json.RawMessage{"x:words": filled(`[{"uri":"x:words","mimeType":"CANARY","text":"CANARY","_meta":{"CANARY":1}}]`),
		"x:uri": filled(`[{"uri":"x:CANARY","text":"x"},{"uri":"x:uri","text":"x"}]`)}
	messages := map[string]json.RawMessage{
		"words": filled(`{"description":"CANARY","messages":[{"role":"user","content":{"type":"text","text":"CANARY"}}]}`),
		"link":  filled(`{"messages":[{"role":"user","content":{"type":"resource_link","name":"x","uri":"x:CANARY"}}]}`)}
	return upstreamtest.Script{Tools: tools, Logging: true, Contents: contents, Messages: messages,
		Prompts: []json.RawMessage{filled(`{"name":"words","description":"CANARY","arguments":[{"name":"CANARY","description":"CANARY"}]}`),
			filled(`{"name":"link"}`), filled(`{"name":"of_CANARY"}`)},
		Resources: []json.RawMessage{filled(`{"uri":"x:words","name":"CANARY","title":"CANARY","size":NUMBER}`),
			filled(`{"uri":"x:uri","name":"x"}`), filled(`{"uri":"x:of-CANARY","name":"x"}`)},
		Templates: []json.RawMessage{filled(`{"uriTemplate":"y:{x}","name":"CANARY","description":"CANARY"}`),
			filled(`{"uriTemplate":"x:of-CANARY/{x}","name":"x"}`)},
		Completions: map[string]json.RawMessage{"words": filled(`{"values":["CANARY","b"],"CANARY":1}`)},
	}
}

func withCanary(text string) string {
	return strings.NewReplacer("CANARY", canary, `\u0043ANARY`, `\u006c`+canary[1:], "NUMBER", canaryNumber).Replace(text)
}

// TestNoPlaceOfAMessageLeaks sends a secret to the client at each place where a server can put a text.
// A caller without redaction reads it, so that the probe shows something; a guarded one never does.
func TestNoPlaceOfAMessageLeaks(t *testing.T) {
	harness.Waits(t)
	all, shown := probes(), map[string]bool{}
	if len(all) < 100 {
		t.Fatalf("%d probes", len(all))
	}
	var mu sync.Mutex // of shown: pairs may run at once
	t.Cleanup(func() {
		for _, probe := range all {
			if len(shown) > 0 && !shown[probe.place] && !t.Failed() { // else the pairs were skipped
				t.Errorf("the probe of %q shows nothing: without redaction no client reads it", probe.place)
			}
		}
	})
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, leaky())
		s.Config.Cache = time.Hour
		guard, keys := harness.Keyring(t, "guarded", "free")
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, guardedRules)})
		j.Offers(t, "up")
		guarded, free := j.As(t, keys["guarded"]), j.As(t, keys["free"])
		for _, probe := range all {
			q := harness.Query{Method: probe.method, Params: withCanary(probe.params), Meta: probe.meta}
			for range 2 { // the second time from the cache
				for _, text := range heard(t, guarded, q) {
					if leaks(text) {
						t.Errorf("%s: the client reads %.600s", probe.place, text)
					}
				}
			}
			for _, text := range heard(t, free, q) {
				if leaks(text) {
					mu.Lock()
					shown[probe.place] = true
					mu.Unlock()
				}
			}
		}
	})
}

// heard makes a request, answers what the server asks, and returns each message that the client reads.
func heard(t *testing.T, c *harness.Talker, q harness.Query) (texts []string) {
	t.Helper()
	base := q.Params
	for range 3 {
		var last jsonrpc.Message
		for a := c.Begin(t, q); ; {
			m, ok := a.Next(t)
			if !ok {
				break
			}
			if texts = append(texts, string(m.Append(nil))); m.IsRequest() {
				c.Respond(t, m.ID, harness.AnswersTo(harness.ServerRequest{Method: m.Method}))
			}
			last = m
		}
		if last.Error != nil || harness.Member(last.Result, "resultType") != `"input_required"` {
			return texts
		}
		var answers []string
		for _, r := range harness.Requested(t, last) {
			answers = append(answers, string(raw.Quote(r.Key))+":"+strings.TrimPrefix(harness.AnswersTo(r), `"result":`))
		}
		q.Params = harness.Retried(base, last, answers...)
	}
	return texts
}

// leaks reports whether a reader of a message reads the canary.
func leaks(message string) bool {
	var v any
	if json.Unmarshal([]byte(message), &v) != nil {
		return true
	}
	text := fmt.Sprintf("%q", v)
	return strings.Contains(text, canary) || strings.Contains(message, canary) ||
		strings.Contains(withoutProtocol(message), canaryNumber)
}

// withoutProtocol returns a message without the size of a resource, which is a number of the protocol.
func withoutProtocol(message string) string {
	return strings.ReplaceAll(message, `"size":`+canaryNumber, "")
}
