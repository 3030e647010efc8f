package protocol

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// This file sends hostile JSON through the proxy, in every direction, and expects what comes out to
// be what went in. Files of testdata/fidelity are
//
//	value_*   any value, to stand wherever the protocol lets anything stand
//	result_*  a whole result of tools/call
//	error_*   a whole error object
//	tool_*    a whole tool definition, whose name is @

// mustCorpus returns the files that begin with kind, by their names, without the line break at
// their end.
func mustCorpus(t *testing.T, kind string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/fidelity/" + kind + "_*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("the corpus of kind %s has the files %q, %v; want some more", kind, files, err)
	}
	corpus := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		corpus[strings.TrimSuffix(filepath.Base(file), ".json")] = strings.TrimSuffix(string(text), "\n")
	}
	return corpus
}

// long is a string of a megabyte, or with -short of an eighth of it, which no buffer of a message holds
// either.
func long() string {
	size := 1 << 20
	if testing.Short() {
		size /= 8
	}
	return `"` + strings.Repeat(`long\u0020\/`, size/12) + `"`
}

// bearing is text in which %s stands for a value.
func bearing(text, value string) string { return strings.ReplaceAll(text, "%s", value) }

// fidelityTools are the definitions of an upstream, whose names are @ and all else stands for
// itself: the corpus, and each value everywhere in a definition.
func fidelityTools(t *testing.T) []string {
	corpus := mustCorpus(t, "tool")
	for name, value := range mustCorpus(t, "value") {
		corpus[name] = bearing(
			`{"x-before":%s,"name":"@","description":"","inputSchema":{"type":"object","properties":{"p":{"default":%s,`+
				`"x-v":%s}},"$defs":{"v":{"const":%s}},`+
				`"x-v":%s,"examples":[%s]},"outputSchema":{"type":"object","x-v":%s},"annotations":{"x-v":%s},`+
				`"icons":[{"src":"data:,","x-v":%s}],"execution":{"x-v":%s},"_meta":{"v":%s},"x-after":%s}`, value)
	}
	var tools []string
	for _, name := range slices.Sorted(maps.Keys(corpus)) {
		tools = append(tools, corpus[name])
	}
	return append(tools, bearing(`{"name":"@","inputSchema":{"type":"object"},"description":%s}`, long()))
}

func TestFidelity(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it changes the tools of one server by a call, and each process has a server of its own")
	tools := fidelityTools(t)
	values, results, failures := mustCorpus(t, "value"), mustCorpus(t, "result"), mustCorpus(t, "error")
	for name, value := range values {
		results[name] = bearing(
			`{"content":[{"type":"text","text":"","x-v":%s},{"type":"x-new","v":%s,"_meta":{"v":%s}}],"structuredContent":%s,`+
				`"isError":true,"x-v":%s}`, value)
		failures[name] = bearing(`{"code":-32000,"message":"x","data":%s,"x-v":%s}`, value)
	}
	failures["value_long"] = bearing(`{"code":-32000,"message":"x","data":%s}`, long())
	for _, up := range harness.Ways() {
		t.Run(up.Era+" "+up.Transport, func(t *testing.T) {
			script := upstreamtest.Script{Era: up.Era, JSONAnswers: up.Transport == "http JSON", PageSize: 3}
			var definitions []string
			for i, text := range tools {
				definitions = append(definitions, strings.Replace(text, `"@"`, fmt.Sprintf(`"tool\u002d%d"`, i), 1))
			}
			for _, name := range []string{"settools", "echo", "fail", "progress"} {
				text := `{"name":"` + name + `","inputSchema":{"type":"object"}}`
				script.Tools, definitions = append(script.Tools, json.RawMessage(text)), append(definitions, text)
			}
			config, journal := harness.MustScripted(t, up.Transport, script)
			s := harness.MustStand(t, proxy.Limits{}, map[string]upstream.Config{"up": config})
			// Not in the script, which is JSON that was decoded and encoded on its way to a
			// process.
			harness.MustCaller(t, s.URL, harness.LegacyEra).MustCall(t, "up__settools",
				`{"tools":[`+strings.Join(definitions, ",")+`]}`, "set")
			s.MustOffer(t, len(definitions))
			for _, era := range harness.BothEras() {
				t.Run("client "+era, func(t *testing.T) {
					c := harness.MustCaller(t, s.URL, era)
					t.Run("tools", func(t *testing.T) { testTools(t, up, c, tools) })
					for _, name := range slices.Sorted(maps.Keys(results)) {
						if up.Era == harness.ModernEra && era == harness.LegacyEra &&
							strings.Contains(results[name], `"structuredContent":`) &&
							!strings.Contains(results[name], `"structuredContent":{`) {
							continue // what such a client does not know is TestStructuredContentThatIsNoObject's
						}
						if era == harness.LegacyEra && strings.Contains(results[name], `"structuredContent":null`) {
							continue // such a client rejects it: TestResultsBetweenEras, in package proxy
						}
						if up.Era == harness.ModernEra && era == harness.LegacyEra && strings.Contains(results[name], `"resultType"`) {
							continue // what such a client does not get is TestResultsKeepTheirBytes's, in package bridge
						}
						t.Run(name, func(t *testing.T) { testCall(t, up, c, journal, results[name]) })
						if !testing.Short() {
							t.Run("progress and "+name, func(t *testing.T) { testProgress(t, up, c, results[name], values) })
						}
					}
					t.Run("value_long", func(t *testing.T) {
						testCall(t, up, c, journal, bearing(`{"content":[{"type":"text","text":%s}]}`, long()))
					})
					for _, name := range slices.Sorted(maps.Keys(failures)) {
						if era == harness.ModernEra && strings.Contains(failures[name], "-32042") {
							continue // that era has another word for it: TestURLElicitationBetweenLegacyPeers
						}
						t.Run("failure "+name, func(t *testing.T) { testFailure(t, up, c, failures[name]) })
					}
				})
			}
		})
	}
}

// exposed returns a text of the corpus with the URIs, where the protocol has some, as clients see
// those of the upstream up.
func exposed(text string) string {
	return strings.NewReplacer(`"ui\/resourceUri":"ui://x"`, `"ui\/resourceUri":"ui://up/x"`,
		`"resource_link","uri":"file:///\u0061"`, `"resource_link","uri":"mcp://up/file:///a"`,
		`"resource","resource":{"uri":"x:"`, `"resource","resource":{"uri":"mcp://up/x:"`).Replace(text)
}

// testTools expects the list to be all definitions, in their order, with nothing changed but their
// names.
func testTools(t *testing.T, f harness.Way, c *harness.Caller, tools []string) {
	x, err := c.Do(t.Context(), "tools/list", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i, text := range tools {
		want.WriteString(strings.Replace(exposed(f.Sent(strings.TrimSpace(text))), `"@"`, fmt.Sprintf(`"up__tool-%d"`, i),
			1) + ",")
	}
	head := `{"jsonrpc":"2.0","id":` + x.ID + `,"result":{"tools":[`
	wantSame(t, x.Answer[:min(len(x.Answer), len(head)+want.Len())], head+want.String())
}

// testCall expects the upstream to get the client's params, and the client to get the upstream's
// result.
func testCall(t *testing.T, f harness.Way, c *harness.Caller, journal *upstreamtest.Journal, result string) {
	mark := `"` + rand.Text() + `"`
	arguments := `{"result":` + result + "\r\n" + `,"name":"mine", "x" : ` + result + ` }`
	members := `"x-before" : ` + result + `,"name": "up__echo" ,"arguments":` + arguments + `,"x-after":[]`
	meta := `"example.com/v":` + result + ` , "k\/":1e400, "mark":` + mark
	x, err := c.Do(t.Context(), "tools/call", "up__echo", members, meta)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, ownResult(x, c.Era, result),
		`{"jsonrpc":"2.0","id":`+x.ID+`,"result":`+exposed(harness.OnLine(x.Streamed, f.Sent(result)))+`}`)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	r, err := journal.Await(ctx, func(r upstreamtest.Record) bool {
		return upstreamtest.Method("tools/call")(r) &&
			bytes.Contains(r.Message.Params[max(0, len(r.Message.Params)-2000):], []byte(mark))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, cutMembers(string(r.Message.Params), "io.modelcontextprotocol/protocolVersion",
		"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities"),
		f.Received(`{`+strings.Replace(members, "up__echo", "echo", 1)+`,"_meta":{`+meta+`}}`))
}

// testProgress expects the client to get each progress notification as the upstream wrote it, but
// for the token, and the result behind them.
func testProgress(t *testing.T, f harness.Way, c *harness.Caller, result string, values map[string]string) {
	const token = `"tok\u0065n\/9007199254740993"`
	var more []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		more = append(more, `"x-`+name+`" : `+values[name])
	}
	members := strings.Join(more, " ,\n")
	x, err := c.Do(t.Context(), "tools/call", "up__progress",
		`"name":"up__progress","arguments":{"n":2,"params":{`+members+`},"result":`+result+`}`, `"progressToken":`+token)
	if err != nil {
		t.Fatal(err)
	}
	if !x.Streamed || len(x.Before) != 2 {
		t.Fatalf("%d notifications came (streamed: %t), want 2", len(x.Before), x.Streamed)
	}
	for i, got := range x.Before {
		wantSame(t, got,
			fmt.Sprintf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":2,`+
					`"message":"step %[2]d",%s}}`,
				token, i+1, harness.OneLine(members)))
	}
	wantSame(t, ownResult(x, c.Era, result),
		`{"jsonrpc":"2.0","id":`+x.ID+`,"result":`+exposed(harness.OneLine(result))+`}`)
}

// testFailure expects the client to get the upstream's error object.
func testFailure(t *testing.T, f harness.Way, c *harness.Caller, failure string) {
	x, err := c.Call(t.Context(), "up__fail", `{"error":`+failure+`}`)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, x.Answer, `{"jsonrpc":"2.0","id":`+x.ID+`,"error":`+harness.OnLine(x.Streamed, f.Sent(failure))+`}`)
}

// ownResult is the answer without what a modern client must get and the upstream did not say in
// result: resultType, and who we are.
func ownResult(x harness.Exchanged, era, result string) string {
	if era != harness.ModernEra {
		return x.Answer
	}
	const info = `"io.modelcontextprotocol/serverInfo":{"name":"junction","title":"Junction","version":"devel"}`
	additions := []string{`,"_meta":{` + info + `}`, `"_meta":{` + info + `}`}
	if _, err := raw.Get([]byte(result), "_meta"); err == nil {
		additions = []string{`,` + info, info}
	}
	text := cutLast(x.Answer, additions...)
	if _, err := raw.Get([]byte(result), "resultType"); err == nil {
		return text
	}
	return cutLast(text, `,"resultType":"complete"`, `"resultType":"complete"`)
}

// cutLast cuts out the last place of the first of the texts that there is.
func cutLast(s string, texts ...string) string {
	for _, text := range texts {
		if at := strings.LastIndex(s, text); at >= 0 {
			return s[:at] + s[at+len(text):]
		}
	}
	return s
}

// cutMembers takes members out of the _meta of params.
func cutMembers(params string, names ...string) string {
	for _, name := range names {
		v, err := raw.Get([]byte(params), "_meta", name)
		if err != nil {
			continue
		}
		for _, written := range []string{`,"` + name + `":` + string(v), `"` + name + `":` + string(v) + `,`} {
			if strings.Count(params, written) == 1 {
				params = strings.Replace(params, written, "", 1)
				break
			}
		}
	}
	return params
}

// wantSame shows where two texts part.
func wantSame(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	around := func(s string) string { return s[max(0, min(at, len(s))-80):min(len(s), at+160)] }
	t.Errorf("differs at byte %d of %d:\n got %q\nwant %q (of %d)", at, len(got), around(got), around(want), len(want))
}

// TestFidelityFindsChanges breaks what TestFidelity guards.
func TestFidelityFindsChanges(t *testing.T) {
	harness.Waits(t)
	for _, test := range []struct{ got, want string }{
		{`{"a":1}`, `{"a":1.0}`}, {`{"a": 1}`, `{"a":1}`}, {`{"a":"A"}`, `{"a":"\u0041"}`},
		{harness.OneLine("[1,\n2]"), "[1,2]"}, {harness.OneLine("\r\n"), " "},
	} {
		if test.got == test.want {
			t.Errorf("%q and %q are the same", test.got, test.want)
		}
	}
	x := harness.Exchanged{
		Answer: `{"result":{"content":[],"resultType":"complete",` +
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"junction","title":"Junction","version":"devel"}}}}`}
	if got, want := ownResult(x, harness.ModernEra, `{"content":[]}`), `{"result":{"content":[]}}`; got != want {
		t.Errorf("ownResult = %s, want %s", got, want)
	}
	if got := ownResult(x, harness.LegacyEra, `{"content":[]}`); got != x.Answer {
		t.Errorf("ownResult of a legacy client = %s, want %s", got, x.Answer)
	}
}
