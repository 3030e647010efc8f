package redact

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/policy"
)

// restoring returns the Redactor of a policy that restores, for one owner.
func restoring(m *Memory, o Owner) *Redactor {
	return For(&policy.Safeguards{Secrets: true, Redactions: []policy.Redaction{
		{Name: "ticket", Re: regexp.MustCompile(`TCK-[0-9]+`), Restore: true},
		{Name: "number", Re: regexp.MustCompile(`^4[0-9]{15}$`), Restore: true},
		{Name: "half", Re: regexp.MustCompile(`^half.(half.?)?$`), Restore: true},
		{Name: "short", Re: regexp.MustCompile(`^short!$`), Restore: true},
		{Name: "lost", Re: regexp.MustCompile(`gone[0-9]+`)},
	}}).With(m, o)
}

var (
	first  = Owner{Account: "ann", Session: "s1", Upstream: "files", Source: new(int)}
	marked = regexp.MustCompile(`\[redacted: [^\]]*\]`)
)

// markOf returns the mark that replaces a text.
func markOf(t *testing.T, r *Redactor, secret string) string {
	t.Helper()
	text, _ := json.Marshal(map[string]string{"text": secret})
	out, n, err := r.Text(text, Nothing)
	if mark := marked.FindString(string(out)); err == nil && n == 1 && mark != "" {
		return mark
	}
	t.Fatalf("%s becomes %s, %d, %v; want one mark", text, out, n, err)
	return ""
}

// TestRemovedTextComesBack: arguments with a mark become those with the text, byte by byte, and other
// text stays.
func TestRemovedTextComesBack(t *testing.T) {
	var m Memory
	r := restoring(&m, first)
	// with escapes in every notation, which must come back as they are
	in := []byte(`{"a":"x TCK-1 y","b":"\u0054CK-2\/","n":4111111111111111,"t":"` + githubToken +
		`","h":["half\ud800","half\udbff"]}`)
	out, n, err := r.Text(in, Nothing)
	if err != nil || n != 6 {
		t.Fatalf("%s, %d, %v", out, n, err)
	}
	if back, changed, err := r.Arguments(out); err != nil || !changed || string(back) != string(in) {
		t.Errorf("%s\ncomes back as %s, %v, %v; want\n%s", out, back, changed, err, in)
	}
	ticket, number := markOf(t, r, "TCK-1"), ""
	json.Unmarshal([]byte(strings.Split(strings.Split(string(out), `"n":`)[1], ",")[0]), &number)
	for in, want := range map[string]string{
		`{"a":["` + ticket + `",{"b":"` + ticket + ticket + `"}]}`:   `{"a":["TCK-1",{"b":"TCK-1TCK-1"}]}`,
		`{"a":"é\n\u005bredacted` + ticket[len("[redacted"):] + `"}`: `{"a":"é\nTCK-1"}`,
		`{"card":"` + number + `","text":"no"}`:                      `{"card":4111111111111111,"text":"no"}`,
		// what no rule has written stays
		`{"a":"[redacted: ticket] [redacted: JWT] [redacted: other #` + strings.Repeat("A", 16) + `]"}`: "",
		`{"a":"[redacted: ticket #SHORT] [redacted: ticket [redacted: "}`:                               "",
		`{"redacted":"` + strings.Repeat("[redacted: x", 20) + `"}`:                                     "",
	} {
		if want == "" {
			want = in
		}
		if got, _, err := r.Arguments([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s comes back as %s, %v; want %s", in, got, err, want)
		}
	}
	if again := markOf(t, r, "TCK-1"); again != ticket {
		t.Errorf("the same text has the mark %s, and then %s", ticket, again)
	}
}

// TestRemovedTextIsForItsOwner: another session, another upstream and another policy get no text, and
// neither does the name of a member.
func TestRemovedTextIsForItsOwner(t *testing.T) {
	var m Memory
	r := restoring(&m, first)
	mark := markOf(t, r, "TCK-1")
	other := func(change func(*Owner)) *Redactor {
		o := first
		change(&o)
		return restoring(&m, o)
	}
	strict := For(&policy.Safeguards{Redactions: []policy.Redaction{{Name: "ticket", Re: regexp.MustCompile("T")}}})
	huge := markOf(t, r, "TCK-"+strings.Repeat("1", maxText))
	if huge != "[redacted: ticket #none]" {
		t.Errorf("a long text has the mark %s", huge)
	}
	large := markOf(t, r, "TCK-"+strings.Repeat("2", maxText-10))
	for i, row := range []struct {
		r    *Redactor
		text string
		why  Lost
	}{
		{other(func(o *Owner) { o.Session = "s2" }), mark, Gone},
		{other(func(o *Owner) { o.Source = new(int) }), mark, Gone},
		{other(func(o *Owner) { o.Session = "s2"; o.Account = "bob" }), mark, Gone},
		{For(&policy.Safeguards{Redactions: r.rules}), mark, Gone}, // no session
		{For(&policy.Safeguards{Redactions: r.rules}), "[redacted: ticket]", NotKept},
		{strict, mark, NotKept}, {strict, "[redacted: ticket]", NotKept}, {New(nil, true), "[redacted: JWT]", NotKept},
		{r, strings.Replace(mark, "ticket", "number", 1), Gone}, {r, huge, Gone}, {r, "[redacted: lost]", NotKept},
		{r, strings.Repeat(large, maxRestored/maxText+1), TooMuch},
	} {
		text, _ := json.Marshal(map[string]string{"a": "x " + row.text})
		out, changed, err := row.r.Arguments(text)
		if lost, ok := err.(*MarkError); !ok || out != nil || changed || lost.Why != row.why ||
			!strings.Contains(row.text, lost.Mark) {
			t.Errorf("row %d: %.80s comes back as %.80s, %v, %v; want reason %d", i, text, out, changed, err, row.why)
		}
	}
	if _, _, err := r.Arguments([]byte(`{"x":{"` + mark + `" : 1}}`)); err == nil || err.(*MarkError).Why != InName {
		t.Errorf("the name of a member: %v", err)
	}
	if mark := markOf(t, r, "gone1"); mark != "[redacted: lost]" {
		t.Errorf("text of a rule that keeps nothing has the mark %s", mark)
	}
	both := For(&policy.Safeguards{Redactions: []policy.Redaction{
		{Name: "ab", Re: regexp.MustCompile("ab"), Restore: true}, {Name: "bc", Re: regexp.MustCompile("bc")}}}).With(&m, first)
	if mark := markOf(t, both, "abc"); mark != "[redacted: ab]" {
		t.Errorf("text that a rule without restore removes, too, has the mark %s", mark)
	}
}

// TestRemovedTextStaysAwayFromOtherPlaces: a text comes back only where a rule removes it again. So no
// tool that returns its argument shows the text.
func TestRemovedTextStaysAwayFromOtherPlaces(t *testing.T) {
	var m Memory
	r := restoring(&m, first)
	token, ticket, half := markOf(t, r, githubToken), markOf(t, r, "TCK-1"), markOf(t, r, "half!")
	out, _, err := r.Text([]byte(`{"n":4111111111111111}`), Nothing)
	if err != nil {
		t.Fatal(err)
	}
	number := marked.FindString(string(out))
	for _, in := range []string{
		`{"a":"x` + token + `"}`, `{"a":"` + token + `x"}`, `{"a":"\u0078` + token + `"}`, // a border of a word
		`{"a":"` + ticket + `2"}`, `{"a":"` + ticket + ` ` + ticket + `\u0032"}`, // more matches
		`{"a":"no ` + half + `"}`, `{"a":"no ` + number + `"}`, // another place in the string
		`{"a":"gone1` + ticket + ` ` + half + `"}`,
		`{"a":"data:image/png;base64,` + strings.Repeat("A", 8) + token + `"}`, // binary content is not searched
	} {
		back, changed, err := r.Arguments([]byte(in))
		if lost, ok := err.(*MarkError); !ok || lost.Why != Misplaced || back != nil || changed {
			t.Errorf("%s comes back as %s, %v; want that the place is wrong", in, back, err)
		}
	}
	for _, in := range []string{`["` + token + `"]`, `["\n` + token + ` x` + ticket + `TCK-"]`, `["` + half + `"]`} {
		if _, changed, err := r.Arguments([]byte(in)); err != nil || !changed {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestRemovedTextIsFoundInLaterAnswers: the kept texts of 8 characters or more are removed from later
// answers to their owner, also where no rule matches them, and in each notation of JSON.
func TestRemovedTextIsFoundInLaterAnswers(t *testing.T) {
	var m Memory
	answer := func(r *Redactor, in string) string {
		t.Helper()
		out, _, err := r.Text([]byte(in), Nothing)
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		return string(out)
	}
	for in, want := range map[string]string{
		`{"text":"x` + githubToken + `"}`:                       `{"text":"xTOKEN"}`,
		`{"text":"` + escaped("x"+githubToken, 1) + `"}`:        `{"text":"` + escaped("x", 1) + `TOKEN"}`,
		`{"x` + githubToken + `":1}`:                            `{"xTOKEN":1}`,
		`{"uri":"f:x` + githubToken + `"}`:                      `{"uri":"f:xredacted-GitHub-token"}`,
		`{"type":"image","data":"AAAATCK"}`:                     "",
		`{"type":"image","data":"AAAAhalfAhalfA"}`:              `{"type":"image","data":"AAAAHALF"}`,
		`{"text":"data:;base64,AAAAhalfAhalfA"}`:                `{"text":"data:;base64,AAAAHALF"}`,
		`{"text":"card 4111111111111111, 4111111111111111a"}`:   `{"text":"card NUMBER, NUMBERa"}`,
		`{"text":"94111111111111111 41111111111111110"}`:        "",
		`[4111111111111111,41111111111111110]`:                  `["NUMBER",41111111111111110]`,
		`{"text":"xTCK-1234567890 TCK-123456 TCK-12345678"}`:    `{"text":"xLONG TICKET NEW"}`,
		`{"text":"no short!"}`:                                  "",
		`{"text":"` + strings.Repeat(" half\\\"half", 2) + `"}`: `{"text":" QUOTED QUOTED"}`,
	} {
		o := first
		o.Session = in // so that each row has the same kept texts
		r := restoring(&m, o)
		known := map[string]string{
			markOf(t, r, githubToken): "TOKEN", markOf(t, r, "TCK-123456"): "TICKET", markOf(t, r, "TCK-1234567890"): "LONG",
			markOf(t, r, "halfAhalfA"): "HALF", markOf(t, r, `half"half`): "QUOTED", markOf(t, r, "short!"): "SHORT",
			marked.FindString(answer(r, `[4111111111111111]`)): "NUMBER",
		}
		got := marked.ReplaceAllStringFunc(answer(r, in), func(mark string) string { return cmp.Or(known[mark], "NEW") })
		if want == "" {
			want = in
		}
		if got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
	r := restoring(&m, first)
	markOf(t, r, githubToken)
	for _, change := range []func(*Owner){func(o *Owner) { o.Session = "s2" }, func(o *Owner) { o.Source = new(int) }} {
		o := first
		change(&o)
		if in := `{"text":"x` + githubToken + `"}`; answer(restoring(&m, o), in) != in {
			t.Error("the text of another owner is searched for")
		}
	}
	m.Forget(first.Session)
	if in := `{"text":"x` + githubToken + `"}`; answer(r, in) != in {
		t.Error("a text that was dropped is searched for")
	}
}

// TestSearchForRemovedTextIsBounded: a server that writes the starts of many kept texts costs no more
// than a fixed work for each byte. Beyond, the whole string is removed.
func TestSearchForRemovedTextIsBounded(t *testing.T) {
	var m Memory
	r := For(&policy.Safeguards{Redactions: []policy.Redaction{
		{Name: "row", Re: regexp.MustCompile(`^a{99,}[0-9]*$`), Restore: true}}}).With(&m, first)
	const same = 15_000 // characters at the start of all texts
	var list []string
	for i := range 40 {
		list = append(list, strings.Repeat("a", same)+fmt.Sprint(i))
	}
	text, _ := json.Marshal(list)
	if _, n, err := r.Text(text, Nothing); n != len(list) || err != nil {
		t.Fatal(n, err)
	}
	known := r.known(1 << 20)
	in := []byte(strings.Repeat("a", 1<<20))
	if found := known.find(in, nil); len(found) != 1 || found[0] != (span{end: len(in), rule: "row"}) || known.left < -2*same {
		t.Errorf("found %d texts, the first %+v, with %d of the work left; want that the whole string is removed", len(found),
			found[:1], known.left)
	}
	// the texts of a long answer, each 300 characters alike
	list = nil
	for i := range 600 {
		list = append(list, "TCK-"+strings.Repeat("0123456789", 30)+fmt.Sprint(i))
	}
	text, _ = json.Marshal(list)
	r = restoring(&m, Owner{Account: "bob", Session: "s2"})
	if _, n, err := r.Text(text, Nothing); n != len(list) || err != nil {
		t.Fatal(n, err)
	}
	known = r.known(len(text))
	if found := known.find(text, nil); len(found) != len(list) {
		t.Errorf("found %d texts of %d within the bound", len(found), len(list))
	}
}

// TestRemovedTextIsForgotten: with its session, with its upstream, and an hour after its last use.
func TestRemovedTextIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		second := first
		second.Session, second.Source = "s2", new(int)
		has := func(o Owner, mark string) bool {
			_, changed, _ := restoring(&m, o).Arguments([]byte(`{"a":"` + mark + `"}`))
			return changed
		}
		a, b := markOf(t, restoring(&m, first), "TCK-1"), markOf(t, restoring(&m, second), "TCK-1")
		if a == b {
			t.Errorf("two sessions have the same mark %s for one text", a)
		}
		if m.Forget("s1"); has(first, a) || !has(second, b) {
			t.Error("want the text of the other session alone")
		}
		if m.Retain(func(source any) bool { return source == first.Source }); has(second, b) {
			t.Error("the text of a replaced upstream is there")
		}
		a, b = markOf(t, restoring(&m, first), "TCK-1"), markOf(t, restoring(&m, second), "TCK-2")
		time.Sleep(lasts - time.Second)
		if !has(first, a) {
			t.Error("a text that is used is gone within the hour")
		}
		time.Sleep(2 * time.Second)
		if !has(first, a) || has(second, b) {
			t.Error("want the text alone that was used")
		}
		time.Sleep(lasts + 2*swept)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bytes != 0 || len(m.sessions)+len(m.accounts) != 0 || m.sweeping != nil {
			t.Errorf("%d bytes of %d sessions and %d accounts are there", m.bytes, len(m.sessions), len(m.accounts))
		}
	})
}

// TestRemovedTextIsBounded fills an account, then the whole memory: each account loses its own.
func TestRemovedTextIsBounded(t *testing.T) {
	var m Memory
	calm := first
	calm.Account, calm.Session = "calm", "calm"
	mark := markOf(t, restoring(&m, calm), "TCK-1")
	accounts := 80 // more than the memory has room for
	if testing.Short() {
		t.Attr("short", "true")
		accounts = 2
	}
	for a := range accounts {
		o := Owner{Account: fmt.Sprint(a), Session: fmt.Sprint(a), Source: first.Source}
		var list []string
		for i := range maxMessage + 2 {
			list = append(list, fmt.Sprintf("TCK-%d%s", i, strings.Repeat("0", 200)))
		}
		text, _ := json.Marshal(list)
		out, _, err := restoring(&m, o).Text(text, Nothing)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), "#none]"); n != 2 {
			t.Errorf("%d texts of one message were not kept, want 2", n)
		}
		if last := m.accounts[o.Account]; last == nil || last.bytes > maxAccount {
			t.Fatalf("account %d has %+v, want at most %d bytes", a, last, maxAccount)
		}
	}
	if m.bytes > maxMemory {
		t.Errorf("the memory has %d bytes, want at most %d", m.bytes, maxMemory)
	}
	if _, changed, err := restoring(&m, calm).Arguments([]byte(`["` + mark + `"]`)); !changed || err != nil {
		t.Errorf("an account with one text has lost it: %v", err)
	}
	for _, its := range m.sessions {
		for _, r := range its {
			if strings.Contains(r.sealed, strings.Repeat("0", 50)) {
				t.Fatal("a text is not sealed")
			}
		}
	}
	m.sweeping.Stop()
}

// FuzzArguments removes text from any string, and puts it back: the bytes are the same.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"", "TCK-1", "`TCK-1\n", `"`, "[redacted: ticket", "é😀", "4111111111111111", githubToken} {
		for every := range 3 {
			f.Add(s, s, every)
		}
	}
	f.Fuzz(func(t *testing.T, before, after string, every int) {
		var m Memory
		r := restoring(&m, first)
		in := fmt.Sprintf(`{"a":["%s",4111111111111111,{"b":"%s"}]}`, escaped(before+" TCK-12 "+githubToken+after, every%5), escaped(after, 0))
		out, n, err := r.Text([]byte(in), Nothing)
		if err != nil || n < 2 {
			t.Fatalf("%s\nbecame %s, %d, %v", in, out, n, err)
		}
		if strings.Contains(in, "[redacted") || strings.Contains(in, "gone") {
			return // a mark of another origin, or text that is lost
		}
		back, changed, err := r.Arguments(out)
		if err != nil || !changed || !json.Valid(back) || !sameJSON(back, []byte(in)) {
			t.Fatalf("%s\nbecame %s\nand then %s, %v, %v", in, out, back, changed, err)
		}
		m.sweeping.Stop()
	})
}

// sameJSON compares two texts as values: a text that occurs in two spellings comes back in the first.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// TestMarksAreNotFilteredAgain redacts what was redacted, as an error is, or a result that a client waits for
// while the policy changes: it stays as it is, also if a pattern matches the mark of a rule.
func TestMarksAreNotFilteredAgain(t *testing.T) {
	for _, pattern := range []string{`redacted`, `(?s).*`, `(?s).+`, `[a-z]+`, `\[`, `: `, `[A-Z0-9]+`, `.`, `ticket`, `ct`, `none`,
		`-`, `\]`, `[[:word:]]{8,}`, `secret`, `\[redacted: ticket( #[A-Z0-9]+)?\]`, `redacted-ticket`} {
		for _, restore := range []bool{false, true} {
			m := new(Memory)
			rules := []policy.Redaction{{Name: "ticket", Re: regexp.MustCompile(pattern), Restore: restore},
				{Name: "ticket 2", Re: regexp.MustCompile(`TCK-[0-9]+|redacted`), Restore: restore}}
			r := For(&policy.Safeguards{Redactions: rules, Secrets: true, LoseSecrets: !restore})
			if restore {
				r = r.With(m, first)
			}
			for _, in := range []string{`"a secret TCK-1, a redacted ticket none: ABCDEFGH"`, `{"secret TCK-1":"secret"}`,
				`{"uri":"file:///secret/TCK-1/a-redacted-b","redacted":["ticket",2,11111111]}`, `"` + strings.Repeat("redacted", 3000) + `"`,
				`"\u0073ecret TCK\u002d1 \u005bx\u005d"`, `"` + githubToken + ` is redacted"`} {
				once, _, err := r.Text([]byte(in), Nothing)
				if err != nil {
					t.Fatal(err)
				}
				twice, n, err := r.Text(once, Nothing)
				if err != nil || n != 0 || string(twice) != string(once) {
					t.Errorf("with %q (restore: %t), %.80s becomes\n%.300s and then %d more marks, %v:\n%.300s", pattern, restore, in, once, n,
						err, twice)
				}
			}
		}
	}
}

// TestOnlyMarksAreLeft: a text that a server writes in the form of a mark is left only if each of its
// characters is known: the name of a rule, and the reference of a kept text.
func TestOnlyMarksAreLeft(t *testing.T) {
	m := new(Memory)
	r := restoring(m, first)
	mark := markOf(t, r, "TCK-1")
	secret := "TCK-22222"
	for in, want := range map[string]string{
		mark:                                 "",
		"[redacted: ticket #none]":           "",
		"[redacted: ticket]":                 "",
		"[redacted: " + secret + "]":         "[redacted: [redacted: ticket #…]]",
		"[redacted: ticket #" + secret + "]": "[redacted: ticket #[redacted: ticket #…]]",
		"[redacted: ticket " + secret + "]":  "[redacted: ticket [redacted: ticket #…]]",
		"[redacted: ticket] " + secret:       "[redacted: ticket] [redacted: ticket #…]",
		"[redacted: ticket" + secret:         "[redacted: ticket[redacted: ticket #…]",
	} {
		text, _ := json.Marshal(in)
		out, _, err := r.Text(text, Nothing)
		var got string
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if want == "" {
			want = in
		} else {
			got = regexp.MustCompile(`#[A-Z2-7]{16}`).ReplaceAllString(got, "#…")
		}
		if err != nil || got != want {
			t.Errorf("%s becomes %s, %v; want %s", in, got, err, want)
		}
	}
	// The reference of another session is a text of the server.
	words := []policy.Redaction{{Name: "ticket", Re: regexp.MustCompile(`[A-Z2-7]{16}`), Restore: true}}
	other := For(&policy.Safeguards{Redactions: words}).With(m, Owner{Account: "bob", Session: "s2", Upstream: "files", Source: first.Source})
	if out, n, err := other.Text([]byte(`"`+mark+`"`), Nothing); err != nil || n != 1 || strings.Contains(string(out), mark) {
		t.Errorf("the mark %s of another session becomes %s, %d, %v", mark, out, n, err)
	}
}
