package upstream

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/upstream/client"
	"junction/upstream/yamlread"
)

// TestModesHaveEveryFact: each row of the table has the facts that its kind of mode needs, and no others.
// A new field of a row must be added here.
func TestModesHaveEveryFact(t *testing.T) {
	for _, row := range Modes() {
		t.Run(row.Word.String(), func(t *testing.T) {
			own, subject := row.Owner != OwnerNobody, row.Owner == OwnerSubject
			operator := row.SignIn && row.Owner == OwnerOperator
			token := !own || row.Owner == OwnerOperator && !row.SignIn || // a key with a secret ends so: the log hides it
				slices.ContainsFunc(row.AuthKeys, func(key string) bool { return strings.HasSuffix(key, "token") })
			want := map[string]bool{ // whether the row must have the fact; missing if it may
				"Owner": own, "Carries": own, "NeedsFor": row.Needs != SectionNone, "Choose": own,
				"Suggest": row.Asked != AnswerNone, "What": own, "Exposes": own, "Note": own && !subject,
				"Login": own && !operator, "Why": subject, "Left": subject,
				"Renews":     row.SignIn || row.Owner == OwnerJunction, // a credential of another kind is given
				"LeftAdvice": subject, "Cell": true, "Kinds": true, "Token": token,
				"Advice.Refused": true, "Advice.Set": true, "Advice.Lacks": true, "Advice.Absent": own, "Advice.Call": own,
				"Account.Has": subject, "Account.Lost": subject, "Account.Lacks": subject,
				"Account.Give": subject, "Account.Replace": subject, "Account.End": subject,
				"Advice.Broken": own, "Advice.Down": own, "Advice.Without": own,
			}
			free := []string{"Doctor", "Word", "Users", "Keys", "AuthKeys", "AuthNeeds", "AuthOne", "Judge", "Needs", "Stores", "SignIn", "Given", "Asked", "Next"}
			check := func(name string, v reflect.Value) {
				must, known := want[name]
				switch {
				case !known && !slices.Contains(free, name):
					t.Errorf("nothing is known about the fact %s", name)
				case known && must == v.IsZero():
					t.Errorf("the fact %s is %q; want one: %v", name, v, must)
				}
				if v.Kind() == reflect.String {
					wantPlaceholders(t, name, v.String())
				}
			}
			v := reflect.ValueOf(row)
			for i := range v.NumField() {
				name, field := v.Type().Field(i).Name, v.Field(i)
				if field.Kind() != reflect.Struct {
					check(name, field)
					continue
				}
				for j := range field.NumField() {
					check(name+"."+field.Type().Field(j).Name, field.Field(j))
				}
			}
			if row.Given && !subject {
				t.Error("only subjects give their credentials")
			}
			if row.Judge != nil { // AuthNeeds and AuthOne report what is missing
				row.Judge(&Auth{}, func(path, format string, args ...any) {
					t.Errorf("Judge reports a second mistake in a section without keys: %s "+format, slices.Concat([]any{path}, args)...)
				})
			}
			if !row.Users && !row.Keys {
				t.Error("no caller may have the credential")
			}
			if own && row.Has(client.Command) && !row.Given {
				t.Error("a command gets only a credential that is given")
			}
			if needs := slices.Concat(row.AuthNeeds, row.AuthOne); len(without(needs, row.AuthKeys)) > 0 || len(row.AuthOne) == 1 {
				t.Errorf("the keys %q must be among %q, and a choice has two", needs, row.AuthKeys)
			}
		})
	}
}

// wantPlaceholders reports a placeholder of a text that nothing replaces.
func wantPlaceholders(t *testing.T, name, text string) {
	t.Helper()
	text = strings.ReplaceAll(strings.ReplaceAll(text, "${TOKEN}", ""), "{ mode:", "")
	for _, part := range strings.Split(text, "{")[1:] {
		if word, _, _ := strings.Cut(part, "}"); !slices.Contains([]string{"name", "scopes", "command", "token"}, word) {
			t.Errorf("%s has the placeholder {%s}, which nothing replaces", name, word)
		}
	}
}

// TestEachRowSaysWhereATokenBelongs: the advice about a token of the server's, and the error about an unknown mode,
// name the way of each mode that takes one.
func TestEachRowSaysWhereATokenBelongs(t *testing.T) {
	none := AuthNone.Row()
	_, unknown := ParseMode("magic")
	for _, row := range modes {
		for place, text := range map[string]string{"an unknown mode": unknown.Error(), "401": none.About(none.Advice.Refused, "x"),
			"403": none.About(none.Advice.Set, "x"), "a lack of scopes": none.About(none.Advice.Lacks, "x")} {
			if !strings.Contains(text, row.Token) {
				t.Errorf("the text about %s does not name the way of %s: %s", place, row.Word, text)
			}
		}
	}
}

// TestModesShareNoWord: each word is read as its own mode, and a mode that a server asks for, or in which
// an owner signs in, is the only one.
func TestModesShareNoWord(t *testing.T) {
	asked, signIn, given := map[Answer]AuthMode{}, map[Owner]AuthMode{}, 0
	for _, row := range Modes() {
		var read AuthMode
		if err := yaml.Unmarshal([]byte(row.Word.String()), &read); err != nil || read != row.Word || read.Row().Word != row.Word {
			t.Errorf("%s is read as %q, %v", row.Word, read, err)
		}
		if other, twice := asked[row.Asked]; twice && row.Asked != AnswerNone {
			t.Errorf("the same answer asks for %s and %s", other, row.Word)
		}
		if other, twice := signIn[row.Owner]; twice && row.SignIn {
			t.Errorf("the same owner signs in with %s and %s", other, row.Word)
		}
		if asked[row.Asked] = row.Word; row.SignIn {
			signIn[row.Owner] = row.Word
		}
		if row.Given {
			given++
		}
	}
	if given != 1 {
		t.Errorf("callers give keys in %d modes", given)
	}
	if AuthMode("unknown").Row().Owner != OwnerNobody {
		t.Error("an unknown word sends a credential")
	}
}

// TestKeysOfAuthBelongToModes: each key of auth is in a row, and each key of a row exists.
func TestKeysOfAuthBelongToModes(t *testing.T) {
	var keys, rows []string
	fields := reflect.TypeFor[Auth]()
	for i := range fields.NumField() {
		if key := fields.Field(i).Tag.Get("yaml"); key != "mode" {
			keys = append(keys, key)
		}
	}
	for _, row := range Modes() {
		rows = append(rows, row.AuthKeys...)
	}
	slices.Sort(keys)
	slices.Sort(rows)
	if rows = slices.Compact(rows); !slices.Equal(keys, rows) {
		t.Errorf("auth has the keys %q, the modes %q", keys, rows)
	}
}

// TestLackNamesTheRemedyOfItsMode: junction login is the remedy of a sign-in of the operator only.
func TestLackNamesTheRemedyOfItsMode(t *testing.T) {
	for _, row := range Modes() {
		if !row.Shared() {
			continue
		}
		for _, e := range []LackError{{}, {Again: true}, {Lacks: true, Scopes: []string{"a", "b"}}} {
			e.Upstream, e.Mode = "x", row.Word
			text := e.Error()
			if login := strings.Contains(text, LoginCommand("x", e.Scopes...)); login != (row.Owner == OwnerOperator && row.SignIn) || text == "" {
				t.Errorf("%s: %+v is %q", row.Word, e, text)
			}
		}
	}
}

// TestLackOfAnotherModeHasItsOwnRemedy: a mode without a sign-in of the operator does not name junction
// login, and its upstream is blocked instead of waiting for a sign-in.
func TestLackOfAnotherModeHasItsOwnRemedy(t *testing.T) {
	advice := Advice{Absent: "set upstreams.{name}.auth.token", Broken: "replace upstreams.{name}.auth.token",
		Lacks: "its token lacks a scope{scopes}"}
	for want, e := range map[string]LackError{
		"set upstreams.x.auth.token":               {},
		"replace upstreams.x.auth.token":           {Again: true},
		"it ended; replace upstreams.x.auth.token": {Again: true, Reason: "it ended"},
		"its token lacks a scope of read, run":     {Lacks: true, Scopes: []string{"read", "run"}},
	} {
		e.Upstream = "x"
		if got := e.text(advice); got != want {
			t.Errorf("%+v is %q, want %q", e, got, want)
		}
	}
	if state := stateAfter(&LackError{Upstream: "x", Mode: AuthNone}); state != StateBlocked {
		t.Errorf("without a sign-in the state is %v", state)
	}
}

// TestKeysOfAnotherMode: a key of auth that the mode does not have is a mistake, and so is the lack of one
// that it needs.
func TestKeysOfAnotherMode(t *testing.T) {
	row := Mode{Word: "token", AuthKeys: []string{"token", "scopes", "secret", "file"}, AuthNeeds: []string{"token"},
		AuthOne: []string{"secret", "file"}}
	for keys, want := range map[string]string{
		"token secret":         "",
		"token file scopes":    "",
		"scopes file":          "auth: needs token for mode: token",
		"token file client_id": "auth.client_id: does not belong to mode: token; remove it",
		"token":                "auth: needs one of secret, file for mode: token",
		"token secret file":    "auth: has more than one of secret, file; remove all but one",
	} {
		var got []string
		row.checkKeys(strings.Fields(keys), func(path, format string, args ...any) {
			got = append(got, path+": "+fmt.Sprintf(format, args...))
		})
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s: %q, want %q", keys, text, want)
		}
	}
}

// TestSecretsHaveNoLineBreak: the error about a secret of auth with a line break, such as that of a file with two lines,
// names the key, in each mode that has it. A secret is text, and its key ends so.
func TestSecretsHaveNoLineBreak(t *testing.T) {
	tried := 0
	for key, index := range yamlread.Keys(reflect.TypeFor[Auth]()) {
		if !regexp.MustCompile(`(token|secret|password)$`).MatchString(key) {
			continue
		}
		for _, row := range Modes() {
			if !slices.Contains(row.AuthKeys, key) {
				continue
			}
			tried++
			for _, ends := range []string{"\n", "\r", "\x00"} {
				c := Config{URL: "https://x.example/mcp", Auth: Auth{Mode: row.Word}}
				reflect.ValueOf(&c.Auth).Elem().FieldByIndex(index).SetString("canary-one" + ends + "canary-two")
				if !slices.ContainsFunc(c.Validate("x"), func(p yamlread.Problem) bool {
					return p.Path == "auth."+key && strings.Contains(p.Text, "has a line break")
				}) {
					t.Errorf("with mode: %s, %s may have %q", row.Word, key, ends)
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no mode has a secret")
	}
}

// TestErrorOfAnEarlierReleaseHasASentence: a process of an earlier release names no mode in the error of
// a user who has to sign in.
func TestErrorOfAnEarlierReleaseHasASentence(t *testing.T) {
	if row := (&SignInError{Upstream: "x"}).Row(); row.Owner != OwnerSubject || row.Advice.Absent == "" {
		t.Errorf("its row is %+v", row)
	}
}
