package authserver

import (
	"encoding/base64"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestTokensVerifiers redeems a code with wrong verifiers. The client has one try.
func TestTokensVerifiers(t *testing.T) {
	const (
		tooShort      = "code_verifier must have at least 43 characters"
		tooLong       = "code_verifier must have at most 128 characters"
		badText       = "code_verifier may contain only A-Z, a-z, 0-9 and - . _ ~"
		mismatch      = "code_verifier does not match the code_challenge of the authorization request"
		otherRedirect = "redirect_uri is not that of the authorization request"
	)
	right := mustIssued(t).had["verifier"]
	for name, row := range map[string]struct {
		changes []string
		want    string // "" if it gets tokens
		again   bool   // the right verifier is good after that
	}{
		"wrong":               {[]string{"code_verifier", strings.Repeat("w", 43)}, mismatch, false},
		"missing":             {[]string{"code_verifier", ""}, tooShort, false},
		"short":               {[]string{"code_verifier", right[:42]}, tooShort, false},
		"a part":              {[]string{"code_verifier", right[:43]}, mismatch, false},
		"another case":        {[]string{"code_verifier", strings.ToUpper(right)}, mismatch, false},
		"long":                {[]string{"code_verifier", strings.Repeat("w", 129)}, tooLong, false},
		"the longest":         {[]string{"code_verifier", strings.Repeat("w", 128)}, mismatch, false},
		"other characters":    {[]string{"code_verifier", right + "+"}, badText, false},
		"a line":              {[]string{"code_verifier", right + "\n"}, badText, false},
		"beyond ASCII":        {[]string{"code_verifier", right + "é"}, badText, false},
		"the challenge":       {[]string{"code_verifier", challengeOf(right)}, mismatch, false},
		"other parameters":    {[]string{"code_challenge_method", "plain", "code_challenge", right}, "", false},
		"another redirect":    {[]string{"redirect_uri", clientAt + "/"}, otherRedirect, true},
		"no redirect":         {[]string{"redirect_uri", ""}, otherRedirect, true},
		"redirect before all": {[]string{"redirect_uri", "", "code_verifier", ""}, otherRedirect, true},
	} {
		t.Run(name, func(t *testing.T) {
			i := mustIssued(t)
			status, m := i.redeem(t, "pending", row.changes...)
			if row.want == "" { // parameters of the authorization request mean nothing here
				if status != http.StatusOK {
					t.Error(status, m)
				}
				return
			}
			refused(t, name, status, m, "invalid_grant")
			if m["error_description"] != row.want {
				t.Errorf("it is told %q, want %q", m["error_description"], row.want)
			}
			status, m = i.redeem(t, "pending")
			if row.again {
				if status != http.StatusOK {
					t.Error("the right way after that: ", status, m)
				}
				return
			}
			refused(t, "the right verifier after that", status, m, "invalid_grant")
			if m["error_description"] != "the code was already tried; begin the authorization again" {
				t.Errorf("after that it is told %q", m["error_description"])
			}
			status, m = i.redeem(t, "pending", "code_verifier", "")
			refused(t, "no verifier after that", status, m, "invalid_request")
		})
	}
}

// TestTokensPlainIsRefused alters stored challenges: only the method S256 is accepted.
func TestTokensPlainIsRefused(t *testing.T) {
	for name, challenge := range map[string]string{
		"plain": "VERIFIER", "empty": "", "with padding": "CHALLENGE=", "a part": "PART", "lower case": "LOWER",
	} {
		t.Run(name, func(t *testing.T) {
			i := mustIssued(t)
			right := challengeOf(i.had["verifier"])
			i.setChallenge(t, "pending", strings.NewReplacer("VERIFIER", i.had["verifier"], "CHALLENGE", right,
				"PART", right[:42], "LOWER", strings.ToLower(right)).Replace(challenge))
			if status, m := i.redeem(t, "pending"); status == http.StatusOK || m["access_token"] != nil {
				t.Errorf("%d %v", status, m)
			}
		})
	}
}

// TestTokensOneRedemptionWins redeems one code twenty times at once. One call gets
// tokens, and the others revoke them.
func TestTokensOneRedemptionWins(t *testing.T) {
	i := mustIssued(t)
	i.sql(t, "DELETE FROM oauth_tokens")
	type answer struct {
		status int
		m      map[string]any
	}
	answers, begin := make(chan answer, 20), make(chan struct{})
	for range cap(answers) {
		go func() {
			<-begin
			status, m := i.redeem(t, "pending")
			answers <- answer{status, m}
		}()
	}
	close(begin)
	var won []map[string]any
	for range cap(answers) {
		a := <-answers
		if a.status == http.StatusOK {
			won = append(won, a.m)
			continue
		}
		refused(t, "one that lost", a.status, a.m, "invalid_grant")
	}
	if len(won) != 1 {
		t.Fatalf("%d redemptions succeed", len(won))
	}
	if all := i.states(t); fmt.Sprint(all) != "map[at:1 revoked:2 rt:1]" {
		t.Errorf("the store has %v", all)
	}
	i.mustNotVerify(t, won[0]["access_token"])
	status, m := i.refresh(t, won[0]["refresh_token"])
	refused(t, "its refresh token", status, m, "invalid_grant")
}

// TestTokensGuessesBesideARedemption redeems a code ten times with a wrong verifier and ten times
// with the right one: the first call decides, and there is never a second pair.
func TestTokensGuessesBesideARedemption(t *testing.T) {
	i := mustIssued(t)
	i.sql(t, "DELETE FROM oauth_tokens")
	good, begin := make(chan bool, 20), make(chan struct{})
	for n := range cap(good) {
		verifier := i.had["verifier"]
		if n%2 == 0 {
			verifier = strings.Repeat("w", 43)
		}
		go func() {
			<-begin
			status, _ := i.redeem(t, "pending", "code_verifier", verifier)
			if status == http.StatusOK && verifier != i.had["verifier"] {
				t.Error("a wrong verifier is good")
			}
			good <- status == http.StatusOK
		}()
	}
	close(begin)
	won := 0
	for range cap(good) {
		if <-good {
			won++
		}
	}
	if all := i.states(t); won > 1 || all["at"] != won || all["rt"] != won || all["active"] != 0 {
		t.Errorf("%d succeed, and the store has %v", won, all)
	}
}

// states counts the tokens of the store by kind and by state.
func (i issued) states(t *testing.T) map[string]int {
	t.Helper()
	s := &stand{dir: i.file[:strings.LastIndex(i.file, "/")]}
	all := map[string]int{}
	for name, where := range map[string]string{
		"at": "kind = 'at'", "rt": "kind = 'rt'", "active": "state = 'active'", "revoked": "state = 'revoked'",
	} {
		if n := s.query(t, "SELECT count(*) FROM oauth_tokens WHERE "+where); n > 0 {
			all[name] = n
		}
	}
	return all
}

// TestTokensAltered presents tokens with a change in each part, and in other
// encodings of the same bytes: a token has one encoding.
func TestTokensAltered(t *testing.T) {
	i := mustIssued(t)
	whole := i.had["access"]
	random, mac, _ := strings.Cut(strings.TrimPrefix(whole, "jct_at_"), ".")
	other := i.had["refresh"]
	otherRandom, otherMAC, _ := strings.Cut(strings.TrimPrefix(other, "jct_rt_"), ".")
	raw, err := base64.RawURLEncoding.DecodeString(random)
	if err != nil || len(raw) != 32 || len(mac) != 43 {
		t.Fatalf("the token is %s: %v", whole, err)
	}
	rows := map[string]string{
		"nothing":                            "",
		"the prefix":                         "jct_at_",
		"a dot":                              "jct_at_.",
		"no random":                          "jct_at_." + mac,
		"no signature":                       "jct_at_" + random + ".",
		"no dot":                             "jct_at_" + random + mac,
		"no prefix":                          random + "." + mac,
		"a refresh token as an access token": "jct_at_" + otherRandom + "." + otherMAC,
		"another prefix":                     "jct_rt_" + random + "." + mac,
		"two prefixes":                       "jct_at_" + whole,
		"another signature":                  "jct_at_" + random + "." + otherMAC,
		"another random":                     "jct_at_" + otherRandom + "." + mac,
		"exchanged":                          "jct_at_" + mac + "." + random,
		"three parts":                        whole + "." + mac,
		"trailing bits of the random":        "jct_at_" + trailing(random) + "." + mac,
		"trailing bits of the signature":     "jct_at_" + random + "." + trailing(mac),
		"a line in the random":               "jct_at_" + random[:5] + "\n" + random[5:] + "." + mac,
		"a line at the end":                  whole + "\n",
		"a line for a character":             "jct_at_" + random[:42] + "\n." + mac,
		"padding":                            "jct_at_" + random + "=." + mac,
		"white space":                        " " + whole,
		"the standard alphabet": "jct_at_" + strings.NewReplacer("-", "+", "_",
			"/").Replace(random+"."+mac) + "=",
		"a short one": "jct_at_" + random[:42] + "." + mac,
		"upper case":  strings.ToUpper(whole),
		"not ASCII":   "jct_at_" + random[:41] + "é." + mac,
		"long":        "jct_at_" + strings.Repeat(random, 100) + "." + mac,
	}
	for n := range whole[:20] {
		rows[fmt.Sprint("without character ", n)] = whole[:n] + whole[n+1:]
	}
	for name, token := range rows {
		t.Run(name, func(t *testing.T) { i.mustNotVerify(t, token) })
	}
	i.mustVerify(t, whole)
	// The same for a code and a refresh token, which stay valid.
	status, m := i.redeem(t, "pending", "code", respell(i.had["pending"]))
	refused(t, "a code in another spelling", status, m, "invalid_grant")
	status, m = i.redeem(t, "pending", "code", i.had["refresh"])
	refused(t, "a refresh token as a code", status, m, "invalid_grant")
	status, m = i.refresh(t, respell(other))
	refused(t, "a refresh token in another spelling", status, m, "invalid_grant")
	status, m = i.refresh(t, "jct_rt_"+random+"."+mac)
	refused(t, "an access token as a refresh token", status, m, "invalid_grant")
	if status, m = i.redeem(t, "pending"); status != http.StatusOK {
		t.Error(status, m)
	}
	if status, m = i.refresh(t, other); status != http.StatusOK {
		t.Error(status, m)
	}
}

// trailing changes the unused last bits of 43 base64 characters.
func trailing(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return s[:len(s)-1] + string(alphabet[strings.IndexByte(alphabet, s[len(s)-1])|1])
}

// respell changes the trailing bits of the random part of a token.
func respell(token string) string {
	head, mac, _ := strings.Cut(token, ".")
	return trailing(head) + "." + mac
}

// TestTokensRefreshOfAScopeThatIsGone: a scope that the server no longer has is not granted again.
func TestTokensRefreshOfAScopeThatIsGone(t *testing.T) {
	i := mustIssued(t)
	i.scopes = []string{scopeMCP}
	status, m := i.refresh(t, i.had["refresh"])
	refused(t, "a refresh", status, m, "invalid_scope")
	if m["error_description"] != "this server no longer has the scope offline_access" {
		t.Errorf("it is told %q", m["error_description"])
	}
	i.scopes = scopes
	if status, m = i.refresh(t, i.had["refresh"]); status != http.StatusOK {
		t.Error(status, m)
	}
}

// TestTokensComparedInConstantTime reads mint.go: it compares MACs and challenges only with
// crypto/hmac and crypto/subtle.
func TestTokensComparedInConstantTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "mint.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	secret := []string{"mac", "met", "challenge", "signature", "random", "sum", "code"}
	named := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && slices.Contains(secret, id.Name)
	}
	calls := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (named(n.X) || named(n.Y)) {
				t.Errorf("%v %s %v is not in constant time", n.X, n.Op, n.Y)
			}
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok {
				calls[pkg.Name+"."+n.Sel.Name]++
			}
		}
		return true
	})
	if calls["hmac.Equal"] != 1 || calls["subtle.ConstantTimeCompare"] != 1 ||
		calls["bytes.Equal"] != 0 || calls["strings.EqualFold"] != 0 {
		t.Errorf("mint.go calls %v", calls)
	}
}

// TestTokensRowsOfAnotherGrant alters rows to name another client or endpoint than their grant:
// they give no tokens.
func TestTokensRowsOfAnotherGrant(t *testing.T) {
	for name, value := range map[string]string{"client": "'other'",
		"resource": "'https://junction.example/web/mcp'"} {
		t.Run(name, func(t *testing.T) {
			i := mustIssued(t)
			for _, table := range []string{"oauth_codes", "oauth_tokens"} {
				i.sql(t, "UPDATE "+table+" SET request = CAST(json_set(request, '$."+name+"', "+value+") AS BLOB)")
			}
			if status, m := i.redeem(t, "pending"); status == http.StatusOK || m["access_token"] != nil {
				t.Errorf("a code: %d %v", status, m)
			}
			if status, m := i.refresh(t, i.had["refresh"]); status == http.StatusOK || m["access_token"] != nil {
				t.Errorf("a refresh token: %d %v", status, m)
			}
		})
	}
}
