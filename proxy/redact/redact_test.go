package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"junction/policy"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Tokens are put together here, so that nobody who searches this repository for secrets finds any.
var (
	githubToken = "gh" + "p_" + strings.Repeat("aB3x", 9)
	awsKey      = "AK" + "IA" + "IOSFODNN7EXAMPLE"
	jwt         = "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0." + strings.Repeat("x-_Y", 8)
	pemKey      = "-----BEGIN RSA PRIVATE" + " KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + strings.Repeat("MIIEow0123456789abcdefghij+/ABCD\n", 4) + "-----END RSA PRIVATE" + " KEY-----"
)

func TestSecretShapes(t *testing.T) {
	long := strings.Repeat("aB3dE5gH", 12)
	for _, row := range []struct{ text, want string }{
		{githubToken, "[redacted: GitHub token]"},
		{"gh" + "o_" + long[:36], "[redacted: GitHub token]"},
		{"gh" + "u_" + long[:36], "[redacted: GitHub token]"},
		{"gh" + "r_" + long[:76], "[redacted: GitHub token]"},
		{"gh" + "s_12345_" + jwt, "[redacted: GitHub token]"},
		{"github" + "_pat_" + long[:22] + "_" + long[:59] + " x", "[redacted: GitHub token] x"},
		{"glpat" + "-" + long[:20], "[redacted: GitLab token]"},
		{"id=" + awsKey + ";", "id=[redacted: AWS key];"},
		{"AS" + "IA" + "IOSFODNN7EXAMPLE", "[redacted: AWS key]"},
		{"xox" + "b-123456789012-1234567890123-" + long[:24], "[redacted: Slack token]"},
		{"xox" + "e.xox" + "p-1-" + long[:40], "xox" + "e.[redacted: Slack token]"},
		{"xapp" + "-1-A0123-456-" + long[:64], "[redacted: Slack token]"},
		{"sk" + "_live_" + long[:24], "[redacted: Stripe key]"},
		{"rk" + "_live_" + long[:24], "[redacted: Stripe key]"},
		{"key=AI" + "za" + long[:33] + "-_&x", "key=[redacted: Google key]&x"},
		{"npm" + "_" + long[:36], "[redacted: npm token]"},
		{"pypi" + "-AgEIcHlwaS5vcmc" + long, "[redacted: PyPI token]"},
		{"hf" + "_" + long[:34], "[redacted: Hugging Face token]"},
		{"sk" + "-ant-api03-" + long, "[redacted: Anthropic key]"},
		{"sk" + "-proj-" + long, "[redacted: OpenAI key]"},
		{"sk" + "-" + long[:48], "[redacted: API key]"},
		{"sk" + "-or-v1-" + long[:64], "[redacted: API key]"},
		{"Bearer jct" + "_key_01234567_" + long[:49], "Bearer [redacted: Junction key]"},
		{"Authorization: Bearer " + jwt + "\n", "Authorization: Bearer [redacted: JWT]\n"},
		{"a\n" + pemKey + "\nb", "a\n[redacted: private key]\nb"},
		{strings.ReplaceAll(pemKey, "\n", `\n`), "[redacted: private key]"},
		{"-----BEGIN PGP PRIVATE" + " KEY BLOCK-----\nx\n-----END PGP PRIVATE" + " KEY BLOCK-----.", "[redacted: private key]."},
		{"cut off: -----BEGIN PRIVATE" + " KEY-----\n" + long, "cut off: [redacted: private key]"},
		{"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n" + pemKey, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n[redacted: private key]"},
		{githubToken + "," + awsKey, "[redacted: GitHub token],[redacted: AWS key]"},
		{"https://x:" + githubToken + "@github.com/a/b.git", "https://x:[redacted: GitHub token]@github.com/a/b.git"},
		{"TOKEN_" + githubToken, "TOKEN_[redacted: GitHub token]"},
		{"\x1b[31m" + githubToken + "\x1b[0m", "\x1b[31m[redacted: GitHub token]\x1b[0m"},
		{`{"log":"line\n` + githubToken + `"}`, `{"log":"line\n[redacted: GitHub token]"}`},
		{`t\u003d` + githubToken, `t\u003d[redacted: GitHub token]`},
		{"ghp_" + githubToken, "ghp_[redacted: GitHub token]"},

		{"eyJ-aaaaaaaaa-" + githubToken, "eyJ-aaaaaaaaa-[redacted: GitHub token]"},
		{"-----BEGIN PRIVATE KEY-----" + githubToken, "-----BEGIN PRIVATE KEY-----[redacted: GitHub token]"},

		{"gh" + "p_" + long[:35], ""},
		{"high" + githubToken[1:], ""},
		{"xgh" + "p_" + long[:36], ""},
		{"ghp_, gho_ and ghs_ are prefixes of tokens", ""},
		{"AK" + "IA" + "IOSFODNN7EXAMPL", ""},
		{"AK" + "IA" + "IOSFODNN7EXAMPLES", ""},
		{"AK" + "IA" + "iosfodnn7example", ""},
		{awsKey + "s", ""},
		{"AKIAKIAKIAKIA", ""},
		{"xoxo-hugs-and-kisses-to-you", ""},
		{"xox" + "b-short", ""},
		{"task-" + long[:40], ""},
		{"risk-assessment-of-the-whole-organisation-in-2026", ""},
		{"sk-learn-contrib-and-other-packages-of-the-kind", ""},
		{"sk-" + long[:31], ""},
		{"sk_test_" + long[:24], ""},
		{"AIza" + long[:34], ""},
		{"AIza" + long[:36], ""},
		{"npm_config_registry=https://registry.npmjs.org/", ""},
		{"npm_lifecycle_event_and_other_variables_of_npm", ""},
		{"hf_hub_download(repo_id, filename)", ""},
		{"eyJhbGciOiJIUzI1NiJ9", ""},
		{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.short", ""},
		{"-----BEGIN PUBLIC KEY-----\n" + long + "\n-----END PUBLIC KEY-----", ""},
		{"look for -----BEGIN PRIVATE" + " KEY----- in the file", ""},
		{"sha256:" + strings.Repeat("0123456789abcdef", 4), ""},
		{"", ""}, {"g", ""}, {"gh", ""}, {"eyJ", ""}, {"-----BEGIN ", ""},
	} {
		if row.want == "" {
			row.want = row.text
		}
		for _, pad := range []string{"", " ", "  "} { // tokens begin at even and odd places
			in := raw.Quote(pad + row.text)
			got, n, err := New(nil, true).Text(in, Nothing)
			if want := raw.Quote(pad + row.want); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%q became %s, %v\n\twant %s", row.text, got, err, want)
			}
			if (n > 0) != (row.want != row.text) {
				t.Errorf("%q: %d places", row.text, n)
			}
		}
	}
}

func TestRedaction(t *testing.T) {
	ticket := policy.Redaction{Name: "ticket", Re: regexp.MustCompile(`TCK-[0-9]{8}`)}
	words := policy.Redaction{Name: "word", Re: regexp.MustCompile(`(?i)secret|text|image|x-1`)}
	for _, row := range []struct {
		name     string
		rules    []policy.Redaction
		in, want string // "" is no change
	}{
		{"nothing", []policy.Redaction{ticket}, ` { "content" : [ ] } `[1:17], ""},
		{"a text", []policy.Redaction{ticket}, `{"content":[{"type":"text","text":"see TCK-12345678, TCK-87654321."}]}`,
			`{"content":[{"type":"text","text":"see [redacted: ticket], [redacted: ticket]."}]}`},
		{"the rest stays as it was", []policy.Redaction{ticket}, `{ "content":[ {"type" :"text","text":"\u00e9\/\"TCK-12345678\u2028", "n": 1.0e+2 } ],"x":[null ,true]}`,
			`{ "content":[ {"type" :"text","text":"\u00e9\/\"[redacted: ticket]\u2028", "n": 1.0e+2 } ],"x":[null ,true]}`},
		{"escapes do not hide it", []policy.Redaction{ticket}, `{"a":"\u0054CK-1234\u0035678","b":"\ud83d\ude00TCK-12345678\ud800\n"}`,
			`{"a":"[redacted: ticket]","b":"\ud83d\ude00[redacted: ticket]\ud800\n"}`},
		{"nor do they where everything is escaped", []policy.Redaction{ticket}, `{"a":"\u0054CK-12345678"}`, `{"a":"[redacted: ticket]"}`},
		{"words of MCP stay", []policy.Redaction{words}, `{"content":[{"type":"text","text":"the text","mimeType":"text/plain","annotations":{"audience":["user"],"title":"text"}}]}`,
			`{"content":[{"type":"text","text":"the [redacted: word]","mimeType":"text/plain","annotations":{"audience":["user"],"title":"[redacted: word]"}}]}`},
		{"other words do not", []policy.Redaction{words}, `{"content":[{"type":"a text","role":"text","mimeType":"text/secret","annotations":{"audience":["text","user"],"lastModified":"text"}}],"resultType":"text"}`,
			`{"content":[{"type":"a [redacted: word]","role":"[redacted: word]","mimeType":"[redacted: word]/[redacted: word]","annotations":{"audience":["[redacted: word]","user"],"lastModified":"[redacted: word]"}}],"resultType":"[redacted: word]"}`},
		{"URIs stay valid", []policy.Redaction{words}, `{"content":[{"type":"resource_link","uri":"x://text/?a=secret","name":"text"}],"icons":[{"src":"https://text.example/secret"}]}`,
			`{"content":[{"type":"resource_link","uri":"x://redacted-word/?a=redacted-word","name":"[redacted: word]"}],"icons":[{"src":"https://redacted-word.example/redacted-word"}]}`},
		{"times stay", []policy.Redaction{{Name: "day", Re: regexp.MustCompile(`2026-[0-9-]+`)}}, `{"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01","structuredContent":{"createdAt":"2026-01-02T03:04:05Z"}}`,
			`{"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"[redacted: day]","structuredContent":{"createdAt":"[redacted: day]T03:04:05Z"}}`},
		{"numbers", []policy.Redaction{{Name: "card", Re: regexp.MustCompile(`[0-9]{16}`)}}, `{"progress":4111111111111111,"n":[4111111111111111, 1,-41111111111111110.5],"structuredContent":{"total":4111111111111111},"total":[4111111111111111]}`,
			`{"progress":4111111111111111,"n":["[redacted: card]", 1,"[redacted: card]"],"structuredContent":{"total":"[redacted: card]"},"total":["[redacted: card]"]}`},
		{"names that become equal", []policy.Redaction{ticket}, `{"structuredContent":{"TCK-00000001":1,"TCK-00000002":2,"[redacted: ticket] (2)":3,"\u005bredacted: ticket] (3)":4,"aTCK-00000001":5}}`,
			`{"structuredContent":{"[redacted: ticket]":1,"[redacted: ticket] (4)":2,"[redacted: ticket] (2)":3,"\u005bredacted: ticket] (3)":4,"a[redacted: ticket]":5}}`},
		{"a name that becomes one of the server", []policy.Redaction{ticket}, `{"x":{"[redacted: ticket]":1,"TCK-00000001":{"TCK-00000002":2,"TCK-00000003":3}}}`,
			`{"x":{"[redacted: ticket]":1,"[redacted: ticket] (2)":{"[redacted: ticket]":2,"[redacted: ticket] (2)":3}}}`},
		{"an object that MCP does not define", []policy.Redaction{words}, `{"other":{"type":"text","text":"x","mimeType":"text/plain"}}`,
			`{"other":{"type":"[redacted: word]","[redacted: word]":"x","mimeType":"[redacted: word]/plain"}}`},
		{"structured content has none", []policy.Redaction{words}, `{"structuredContent":{"type":"text","uri":"x://text","text":1,"list":["text",{"url":"secret"}]}}`,
			`{"structuredContent":{"type":"[redacted: word]","uri":"x://[redacted: word]","[redacted: word]":1,"list":["[redacted: word]",{"url":"[redacted: word]"}]}}`},
		{"_meta", []policy.Redaction{words}, `{"_meta":{"note":"text","type":"text","progressToken":"text","ui":{"resourceUri":"ui://text","text":1},"io.modelcontextprotocol/serverInfo":{"name":"text"}}}`,
			`{"_meta":{"note":"[redacted: word]","type":"[redacted: word]","progressToken":"[redacted: word]","ui":{"resourceUri":"ui://redacted-word","[redacted: word]":1},"io.modelcontextprotocol/serverInfo":{"name":"[redacted: word]"}}}`},
		{"names of members", []policy.Redaction{words}, `{"secret":"a","structuredContent":{"secret":"secret"}}`, `{"[redacted: word]":"a","structuredContent":{"[redacted: word]":"[redacted: word]"}}`},
		{"an escaped name is no name of MCP", []policy.Redaction{words}, `{"t\u0079pe":"text","\u0074ext":1}`, `{"t\u0079pe":"[redacted: word]","[redacted: word]":1}`},
		{"messages of a prompt", []policy.Redaction{words}, `{"messages":[{"role":"user","content":{"type":"text","text":"secret"}}],"description":"secret"}`,
			`{"messages":[{"role":"user","content":{"type":"text","text":"[redacted: word]"}}],"description":"[redacted: word]"}`},
		{"contents of a resource", []policy.Redaction{words}, `{"contents":[{"uri":"a://text","text":"secret"},{"blob":"text","uri":"b://text"}]}`,
			`{"contents":[{"uri":"a://redacted-word","text":"[redacted: word]"},{"blob":"text","uri":"b://redacted-word"}]}`},
		{"an image and a sound", []policy.Redaction{words}, `[{"type":"image","data":"text\/+==","x":"text"},{"data":"text","type":"audio"}]`,
			`[{"type":"image","data":"text\/+==","x":"[redacted: word]"},{"data":"text","type":"audio"}]`},
		{"no image of MCP", []policy.Redaction{words}, `{"structuredContent":{"type":"image","data":"text"}}`, `{"structuredContent":{"type":"[redacted: word]","data":"[redacted: word]"}}`},
		{"no image", []policy.Redaction{words}, `[{"type":"text","data":"text"},{"data":"text"},{"type":"image","data":"no base64, but text"},{"blob":"text"},{"type":"image","data":"text","data":"abcd"}]`,
			`[{"type":"text","data":"[redacted: word]"},{"data":"[redacted: word]"},{"type":"image","data":"no base64, but [redacted: word]"},{"blob":"[redacted: word]"},{"type":"image","data":"[redacted: word]","data":"abcd"}]`},
		{"a binary member before another text", []policy.Redaction{words}, `{"data":"secret","name":"secret","type":"text"}`, `{"data":"[redacted: word]","name":"[redacted: word]","type":"text"}`},
		{"a log message", []policy.Redaction{words}, `{"level":"info","logger":"text","data":{"type":"text","url":"secret"}}`,
			`{"level":"info","logger":"[redacted: word]","data":{"type":"[redacted: word]","url":"[redacted: word]"}}`},
		{"a data URI", []policy.Redaction{words}, `{"text":"text ![](data:image/png;base64,AAtextAA) text","icons":[{"src":"data:image/png;base64,text"}]}`,
			`{"text":"[redacted: word] ![](data:[redacted: word]/png;base64,AAtextAA) [redacted: word]","icons":[{"src":"data:redacted-word/png;base64,text"}]}`},
		{"a text after a data URI", []policy.Redaction{{Name: "card", Re: regexp.MustCompile(`[0-9]{16}`)}},
			`["data:text/plain;base64,QUJD\n4111111111111111","data:;base64,QQ==\r\n\r\n4111111111111111","data:;base64,QQ==4111111111111111","data:;base64,QUJD\\\\n4111111111111111","data:;base64,QQ\\/4111111111111111=","data:;base64,QUJD_4111111111111111"]`,
			`["data:text/plain;base64,QUJD\n[redacted: card]","data:;base64,QQ==\r\n\r\n[redacted: card]","data:;base64,QQ==[redacted: card]","data:;base64,QUJD\\\\n[redacted: card]","data:;base64,QQ\\/4111111111111111=","data:;base64,QUJD_[redacted: card]"]`},
		{"a data URI within a match", []policy.Redaction{{Name: "all", Re: regexp.MustCompile(`a.*z`)}}, `{"text":"a data:;base64,AAzAA az, z"}`,
			`{"text":"[redacted: all]AAzAA[redacted: all]"}`},
		{"matches that overlap", []policy.Redaction{{Name: "one", Re: regexp.MustCompile("abc")}, {Name: "two", Re: regexp.MustCompile("bcd+")}, {Name: "three", Re: regexp.MustCompile("e")}}, `{"x":"abcddde"}`,
			`{"x":"[redacted: one][redacted: three]"}`},
		{"a match of nothing", []policy.Redaction{{Name: "nothing", Re: regexp.MustCompile(`x*|$`)}}, `{"z":"abxxxc","y":""}`, `{"z":"ab[redacted: nothing]c","y":""}`},
		{"a match of nothing anywhere", []policy.Redaction{{Name: "nothing", Re: regexp.MustCompile(`\b|^`)}}, `{"x":"a b"}`, ""},
		{"a name that JSON escapes", []policy.Redaction{{Name: `a "b"` + "\n", Re: regexp.MustCompile("x")}}, `["x"]`, `["[redacted: a \"b\"\n]"]`},
		{"a rule whose text JSON escapes", []policy.Redaction{{Name: "path", Re: regexp.MustCompile(`/etc/`)}, {Name: "more", Re: regexp.MustCompile(`ü"`)}}, `["\/etc\/x","\u00fc\""]`, `["[redacted: path]x","[redacted: more]"]`},
		{"form of a question", []policy.Redaction{words}, `{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"secret","requestedSchema":{"properties":{"b":{"type":"string","enum":["c"],"enumNames":["text"],"title":"text"}},"required":["b"]}}}}}`,
			`{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"[redacted: word]","requestedSchema":{"properties":{"b":{"type":"string","enum":["c"],"enumNames":["[redacted: word]"],"title":"[redacted: word]"}},"required":["b"]}}}}}`},
		{"arguments of a sampled call", []policy.Redaction{words}, `{"content":{"type":"tool_use","input":{"type":"text"}}}`, `{"content":{"type":"tool_use","input":{"type":"[redacted: word]"}}}`},
	} {
		got, n, err := New(row.rules, false).Text([]byte(row.in), Nothing)
		if row.want == "" {
			if err != nil || n != 0 || &got[0] != &[]byte(row.in)[0] && string(got) != row.in {
				t.Errorf("%s: %s, %d, %v; want no change", row.name, got, n, err)
			}
			continue
		}
		if err != nil || string(got) != row.want || n != strings.Count(row.want, "redacted")-strings.Count(row.in, "redacted") {
			t.Errorf("%s: %d places, %v\n\t got %s\n\twant %s", row.name, n, err, got, row.want)
		}
	}
}

func TestRedactionLeavesWhatItDoesNotKnow(t *testing.T) {
	o, err := raw.Parse([]byte(`{"content":[{"type":"text","text":"harmless"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Redactor{nil, New(nil, false), New(nil, true), New([]policy.Redaction{{Name: "x", Re: regexp.MustCompile(`[xyz]{3}`)}}, true)} {
		got, n, err := r.Result(o, Nothing)
		if err != nil || n != 0 || &got.Text()[0] != &o.Text()[0] {
			t.Errorf("a result without a match became %s (%d, %v)", got.Text(), n, err)
		}
	}
	if got, n, err := (*Redactor)(nil).Result(raw.Object{}, Nothing); got.Present() || n != 0 || err != nil {
		t.Errorf("no object became %s, %d, %v", got.Text(), n, err)
	}
	for _, broken := range []string{`{"a":"` + githubToken, `["` + githubToken + `"`, `{"a" "` + githubToken + `"}`, `"` + githubToken + `" x`, `{"` + githubToken + `":`} {
		if got, n, err := New(nil, true).Text([]byte(broken), Nothing); err == nil && n == 0 && bytes.Contains(got, []byte(githubToken)) {
			t.Errorf("%s was passed on", broken)
		}
	}
}

func TestRedactionOfErrors(t *testing.T) {
	r := New(nil, true)
	e := &jsonrpc.Error{Code: -32000, Message: "no access with " + githubToken, Data: []byte(`{"uri":"x://a","token":"` + awsKey + `"}`)}
	got, n := r.Error(e)
	if want := (&jsonrpc.Error{Code: -32000, Message: "no access with [redacted: GitHub token]", Data: []byte(`{"uri":"x://a","token":"[redacted: AWS key]"}`)}); n != 2 ||
		got.Code != want.Code || got.Message != want.Message || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("the error became %v %s (%d), want %v %s", got, got.Data, n, want, want.Data)
	}
	if text := jsonrpc.AppendError(nil, "1", got); bytes.Contains(text, []byte(githubToken)) {
		t.Errorf("the client reads %s", text)
	}
	harmless := &jsonrpc.Error{Code: 1, Message: "no"}
	if got, n := r.Error(harmless); got != harmless || n != 0 {
		t.Errorf("an error without a match became %v", got)
	}
}

// TestRedactionOfEveryMemberOfAnError: what a server writes beside code, message and data is searched, too,
// and stays otherwise. So is a message that is no text, that occurs twice or that has another letter case.
func TestRedactionOfEveryMemberOfAnError(t *testing.T) {
	r := New([]policy.Redaction{{Name: "ticket", Re: regexp.MustCompile(`TCK-[0-9]{8}`)}, {Name: "number", Re: regexp.MustCompile(`^-?[0-9]{5,}$`)}}, false)
	for _, row := range []struct{ in, want string }{
		{`{"code":-32000,"message":"x","trace":"at TCK-12345678","line":7}`, `{"code":-32000,"message":"x","trace":"at [redacted: ticket]","line":7}`},
		{`{"code":-32000,"message":{"x":"TCK-12345678"}}`, `{"code":-32000,"message":{"x":"[redacted: ticket]"}}`},
		{`{"code":-32000,"message":"a","message":"TCK-12345678"}`, `{"code":-32000,"message":"a","message":"[redacted: ticket]"}`},
		{`{"code":-32000,"Message":"TCK-12345678"}`, `{"code":-32000,"Message":"[redacted: ticket]"}`},
		{`{"code":-32000,"message":"x","TCK-12345678":null}`, `{"code":-32000,"message":"x","[redacted: ticket]":null}`},
		{`{"code":-32000,"message":4111111111111111}`, `{"code":-32000,"message":"[redacted: number]"}`},
		{`{"code":-32000,"message":"4111111111111111","type":"image","data":"4111111111111111"}`,
			`{"code":-32000,"message":"[redacted: number]","type":"image","data":"[redacted: number]"}`},
		{`{"code":-32000,"message":"x","data":{"type":"image","data":"4111111111111111"}}`, ""},
		{`{"code":-32000,"message":"x","data":{"requestedSchema":{"properties":{"TCK-12345678":{}}}},"trace":"TCK-12345678"}`, `{"code":-32000,"message":"x"}`},
		{`{"trace":"x","code":-32000}`, ""},
	} {
		e, err := jsonrpc.ParseError([]byte(row.in))
		if err != nil {
			t.Fatal(err)
		}
		got, n := r.Error(e)
		if row.want == "" && got != e {
			t.Errorf("%s became another error", row.in)
		}
		if text := string(got.Append(nil)); text != cmp.Or(row.want, row.in) || (n > 0) != (row.want != "") {
			t.Errorf("%s became %s (%d places), want %s", row.in, text, n, row.want)
		}
		if strings.Contains(got.Message, "TCK") || got.Code != -32000 {
			t.Errorf("%s has the message %q and the code %d", row.in, got.Message, got.Code)
		}
	}
}

// TestRedactionIsBounded has texts that would take for ever, or become huge, if matches were looked
// for, or replaced, one by one.
func TestRedactionIsBounded(t *testing.T) {
	size := 4 << 20
	if testing.Short() { // with the race detector, on a loaded machine
		size >>= 3
	}
	for _, row := range []struct {
		name, piece string
		rule        string // "" is the known secrets
		most        int
	}{
		{"everything matches", "a", `.`, 100},
		{"nothing matches everywhere", "a", `b*`, 100},
		{"begun JWTs", "eyJ-", "", size + 100}, {"begun JWTs with payloads", "eyJaaaaaaaa.eyJaaaaaaaa.-", "", size + 100},
		{"begun keys", "-----BEGIN PRIVATE KEY-----", "", size + 100}, {"begun other keys", "-----BEGIN ", "", size + 100},
		{"begun tokens", "sk-", "", size + 100}, {"more begun tokens", " ghp_AKIAxoxb-", "", size + 100},
		{"quotes", `\"`, "", size + 100}, {"slashes", `\\`, "", size + 100}, {"escapes", `\u0067`, "", size + 100},
		{"data URIs", "data:;base64,ghp_ ", "", size + 100},
		{"many short matches", "TCK-12345678 ", `TCK-[0-9]{8}`, 2 * size},
	} {
		var rules []policy.Redaction
		if row.rule != "" {
			rules = []policy.Redaction{{Name: "x", Re: regexp.MustCompile(row.rule)}}
		}
		text := []byte(`{"text":"` + strings.Repeat(row.piece, size/len(row.piece)) + `"}`)
		start := time.Now()
		got, _, err := New(rules, row.rule == "").Text(text, Nothing)
		if took := time.Since(start); err != nil || len(got) > row.most || !json.Valid(got) || took > 10*time.Second {
			t.Errorf("%s: %d bytes became %d in %v, %v", row.name, len(text), len(got), took, err)
		}
	}
	deep := []byte(strings.Repeat(`[`, 20000) + `"` + githubToken + `"` + strings.Repeat(`]`, 20000))
	if got, _, err := New(nil, true).Text(deep, Nothing); err == nil && bytes.Contains(got, []byte(githubToken)) {
		t.Error("what is nested too deeply was passed on")
	}
}

// escaped writes some characters of a string as numbers.
func escaped(s string, every int) string {
	var b strings.Builder
	for i, r := range s {
		if every > 0 && i%every == 0 {
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
			continue
		}
		q := raw.Quote(string(r))
		b.Write(q[1 : len(q)-1])
	}
	return b.String()
}

// FuzzRedact holds the redactor to what it promises of any JSON: what comes out is JSON, no string
// that a client shows has a secret left, what is no match keeps its bytes, and binary content
// stays.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{"", "x", "\\", "a\x1b[0m", "é\u2028😀", "AK", "gh", "-----BEGIN ", "eyJ", "data:image/png;base64,", `"`, `\u0067`, awsKey, jwt, pemKey[:80], `["` + githubToken + `"]`,
		`{"type":"image","data":"` + awsKey + `","text":"` + awsKey + `"}`} {
		for every := range 3 {
			f.Add(s, s, every, []byte(s))
		}
	}
	r := New([]policy.Redaction{{Name: "ticket", Re: regexp.MustCompile(`TCK-[0-9]{8}`)}, {Name: "odd", Re: regexp.MustCompile(`é*`)}}, true)
	f.Fuzz(func(t *testing.T, before, after string, every int, media []byte) {
		const plain = "TCK-12345678"
		image := base64.StdEncoding.EncodeToString(media)
		text := fmt.Sprintf(`{"content":[{"type":"image","data":"%s","mimeType":"x"}, {"text":"%s","type":"text"},{"type":"resource","resource":{"blob":"%s","uri":"%s"}}]}`,
			image, escaped(before+" "+plain+" "+githubToken+" "+after, every%5), image, "a:"+plain)
		checkRedacted(t, r, text, plain)
		got, _, _ := r.Text([]byte(text), Nothing)
		if !bytes.Contains(got, []byte(`"data":"`+image+`"`)) || !bytes.Contains(got, []byte(`"blob":"`+image+`"`)) || !bytes.Contains(got, []byte(`"uri":"a:redacted-ticket"`)) {
			t.Errorf("%s\nbecame %s", text, got)
		}
		if json.Valid([]byte(before)) {
			checkRedacted(t, r, string(bytes.TrimSpace([]byte(before))), plain)
		}
	})
}

func checkRedacted(t *testing.T, r *Redactor, text, plain string) {
	t.Helper()
	got, n, err := r.Text([]byte(text), Nothing)
	if err != nil || !json.Valid(got) {
		t.Fatalf("%s\nbecame %s, %v", text, got, err)
	}
	if n == 0 && string(got) != text {
		t.Fatalf("%s\nbecame %s without a match", text, got)
	}
	// Between the marks stands what stood there before, in its order.
	rest := text
	for _, piece := range regexp.MustCompile(`\[redacted: [A-Za-z ]+\]|redacted-[A-Za-z-]+| \([0-9]+\)`).Split(string(got), -1) {
		_, after, found := strings.Cut(rest, piece)
		if !found {
			t.Fatalf("%s\nbecame %s\nin which %q is new", text, got, piece)
		}
		rest = after
	}
	var in, out any
	json.Unmarshal([]byte(text), &in)
	json.Unmarshal(got, &out)
	if o, ok := out.(map[string]any); ok {
		for _, c := range anyList(o["content"]) {
			if s, _ := c.(map[string]any)["text"].(string); strings.Contains(s, githubToken) {
				t.Fatalf("%s\nbecame %s", text, got)
			}
		}
	}
	eachString(out, func(s string) {
		if strings.Contains(s, plain) && !strings.Contains(s, "base64,") {
			t.Fatalf("%s\nbecame %s", text, got)
		}
	})
	if countMembers(in) != countMembers(out) && !strings.Contains(text, "redacted: ") {
		t.Fatalf("%s\nbecame %s\nwhich has fewer members", text, got)
	}
	if again, n, err := r.Text(got, Nothing); err != nil || n != 0 {
		t.Fatalf("%s\nbecame %s\nand then %s (%d, %v)", text, got, again, n, err)
	}
}

// eachString calls f with each string and each name of a member in a value.
func eachString(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, e := range v {
			eachString(e, f)
		}
	case map[string]any:
		for name, e := range v {
			f(name)
			eachString(e, f)
		}
	}
}

// countMembers counts the members of all objects in a value.
func countMembers(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += countMembers(e)
		}
	case map[string]any:
		n = len(v)
		for _, e := range v {
			n += countMembers(e)
		}
	}
	return n
}

func anyList(v any) []any {
	list, _ := v.([]any)
	return list
}

func BenchmarkRedact(b *testing.B) {
	line := "2026-11-21T07:20:31Z the task has begun; see https://example.com/risk?x=1 (a \\\"desk\\\" for eyes, high sky)\\n"
	body := func(size int) []byte {
		return []byte(`{"content":[{"type":"text","text":"` + strings.Repeat(line, size/len(line)+1) + `"}],"structuredContent":{"ok":true,"n":[1,2,3]}}`)
	}
	word := policy.Redaction{Name: "ticket", Re: regexp.MustCompile(`TCK-[0-9]{8}`)}
	slow := policy.Redaction{Name: "mail", Re: regexp.MustCompile(`[a-z0-9.]+@[a-z0-9.]+`)}
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		for _, row := range []struct {
			name    string
			r       *Redactor
			replace bool
		}{
			{"secrets", New(nil, true), false}, {"secrets/found", New(nil, true), true},
			{"rule", New([]policy.Redaction{word}, false), false}, {"pattern", New([]policy.Redaction{slow}, false), false},
		} {
			b.Run(fmt.Sprintf("%s/%dK", row.name, size>>10), func(b *testing.B) {
				text := body(size)
				if row.replace {
					text = bytes.Replace(text, []byte("the task"), []byte(githubToken), 3)
				}
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					if _, n, err := row.r.Text(text, Nothing); err != nil || (n > 0) != row.replace {
						b.Fatal(n, err)
					}
				}
			})
		}
	}
}
