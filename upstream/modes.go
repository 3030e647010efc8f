package upstream

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/client"
	"junction/upstream/shell"
	"junction/upstream/transport"
)

// This file has the modes of credentials. A row has every fact about a mode that code and texts outside
// of its source need; modes_test.go demands each of them. The source of a mode, which makes the
// credential, is a file of package auth/credentials. A configuration has the word only, because
// configurations are compared.

// AuthMode is the word of a mode in the file.
type AuthMode string

// The words of the modes. Code outside of this package and of auth/credentials asks Row instead of
// comparing words; a test of the tree holds it to that.
const (
	AuthNone      AuthMode = ""
	AuthOAuth     AuthMode = "oauth"
	AuthOAuthUser AuthMode = "oauth_user"
	AuthClient    AuthMode = "client_credentials"
	AuthUserKey   AuthMode = "user_key"
)

// Owner is whose credential a request to an upstream carries.
type Owner int

const (
	OwnerNobody   Owner = iota // no credential, except what the entry has in headers
	OwnerJunction              // Junction itself
	OwnerOperator              // the operator, for all callers
	OwnerSubject               // the caller, who has connections and a catalog of their own
)

// Answer is an answer of a server to a request without a credential.
type Answer int

const (
	AnswerNone  Answer = iota
	AnswerOAuth        // 401 with a challenge that names an authorization server
)

// Mode is the row of a mode. Texts are parts of sentences, without a full stop. In them, {name} is the
// upstream, {scopes} are the missing scopes after " of ", or nothing, {command} is junction login with its
// arguments, and {token} is UseToken.
type Mode struct {
	Word  AuthMode
	Owner Owner
	// Users and Keys report which callers may have the credential: signed-in users, and API keys.
	Users, Keys bool
	// Kinds are the kinds of upstreams that may have the mode. A command gets only a credential that is Given, in
	// KeyWord.
	Kinds     []*client.ServerKind
	AuthKeys  []string // the keys of auth, except mode, that belong to the mode
	AuthNeeds []string // the AuthKeys without which there is no credential
	AuthOne   []string // the AuthKeys of which an entry needs exactly one
	// Judge reports mistakes in the values of the AuthKeys that no other mode has; nil if there are none.
	Judge    func(a *Auth, bad func(path, format string, args ...any))
	Carries  bool    // a header carries the credential (Auth.Carrier), which headers must not set
	Needs    Section // what the file must have, too
	NeedsFor string  // why; "" without Needs
	Stores   bool    // credentials are in the database
	// SignIn reports whether the owner gets the credential by signing in at the server (OAuth): the
	// operator with junction login, a user on a page.
	SignIn bool
	Renews bool // Junction renews the credential before it expires: metrics count that
	// Given reports whether the subject gives the credential: a key of the server, on a page, or the operator does
	// so with junction users key. Only one mode has it.
	Given bool
	Asked Answer // the answer of a server that asks for the mode

	Choose  string // when to choose the mode, after "write mode: WORD"; "" for none
	Suggest string // what to do if a server asks for the mode; "" without Asked
	// Token is what the operator does with a token that the server gave out, such as a key of its API; "" if the
	// mode takes no such token.
	Token  string
	Advice Advice

	What    string // the credential, in the sentence that a header carries it, too
	Exposes string // what plain http would expose
	Note    string // of junction check: what several callers share; "" for OwnerSubject
	Login   string // why junction login refuses; "" if it signs in, and for OwnerNobody
	Doctor  string // of junction auth doctor: what the server is, after its name; "" if the source has no probe
	// Left is why junction doctor does not check the upstream, and LeftAdvice what checks a part of it; both
	// only for OwnerSubject.
	Left, LeftAdvice string
	Next             string // what a person does after adding an entry; "" for nothing
	Why              string // of junction why: the reason for an unknown item; only for OwnerSubject
	Cell             string // of the table in auth/README.md

	Account AccountWords // only for OwnerSubject
}

// AccountWords are the words of a mode on the account page of a user.
type AccountWords struct {
	// what the page says of the upstream, after its name: the user has a credential, it is no longer good, or
	// there is none
	Has, Lost, Lacks   string
	Give, Replace, End string // what the buttons do
}

// Advice has what to do about credentials that do not work. The texts of OwnerSubject are for the
// caller, the others for the operator, although callers read them, too.
type Advice struct {
	Refused string // the server answers 401
	// the server answers 403 without a scope, or with a page for signing in; after "the server requires
	// authentication: "
	Set string
	// the server answers 401 to a call, and a question of Junction's own shows no end of the sign-in
	Call    string
	Lacks   string // the credential lacks a scope
	Absent  string // there is none yet
	Broken  string // the server, or its issuer, does not accept it any more
	Down    string // its issuer cannot be asked now; an error follows
	Without string // the program has no source for it
}

// Section is a section of the configuration file.
type Section string

const (
	SectionNone  Section = ""
	SectionOAuth Section = "auth.oauth"
	// callers who are told apart: users who sign in, or API keys
	SectionCallers Section = "auth.oauth or auth.api_keys"
)

// signInKeys are the keys of a sign-in with OAuth.
var signInKeys = []string{"scopes", "client_id", "client_secret", "issuer", "authorization_endpoint",
	"token_endpoint", "resource", "params"}

// remote are the kinds of upstreams that take a sign-in with OAuth.
var remote = []*client.ServerKind{client.Remote}

// modes are the rows, in the order of texts that list them.
var modes = []Mode{
	{
		Word: AuthNone, Owner: OwnerNobody, Users: true, Keys: true, Kinds: client.ServerKinds(),
		Token: `set headers, such as Authorization: "Bearer ${TOKEN}"`,
		Advice: Advice{
			Refused: "the server requires authentication: {token}, or replace an expired token; if the server has an " +
				"OAuth sign-in, run: {command}",
			Set:   "{token}, or replace an expired token",
			Lacks: "the token lacks a scope{scopes}: replace it by one that has the scope, or {token}",
		},
		Cell: "none: Junction sends only `headers`",
	},
	{
		Word: AuthOAuth, Owner: OwnerOperator, Users: true, Keys: true, Kinds: remote, AuthKeys: signInKeys,
		Carries: true, Stores: true, SignIn: true, Renews: true, Asked: AnswerOAuth,
		Choose:  "to sign in with junction login",
		Suggest: "the server asks for an OAuth sign-in: set auth: { mode: oauth }, then run: {command}",
		Advice: Advice{
			Refused: "run: {command}; without a running proxy, no sign-in is used for the check",
			Set:     "sign in with an account that may use it; run: {command}",
			Call:    "if each call fails so, run: {command}",
			Lacks:   "the sign-in lacks a scope{scopes}; run: {command}",
			Absent:  "nobody has signed in yet; run: {command}",
			Broken:  "the sign-in has ended; run: {command}",
			Down:    "its sign-in service cannot be asked",
			Without: "no sign-in is configured (auth.oauth)",
		},
		What: "the token of the sign-in", Exposes: "the access tokens of users",
		Note:   "every user who may use it acts with the operator's sign-in",
		Doctor: "which the operator signs in to",
		Next:   "Sign in with: {command}",
		Cell:   "the operator's, for all callers: `junction login`",
	},
	{
		Word: AuthOAuthUser, Owner: OwnerSubject, Users: true, Kinds: remote, AuthKeys: signInKeys,
		Carries: true, Stores: true, SignIn: true, Renews: true,
		Needs:    SectionOAuth,
		NeedsFor: "each person connects it on a page here, and has to be signed in there",
		Choose:   "if each person signs in there themselves",
		Advice: Advice{
			Refused: "the server requires authentication: each user signs in to {name} in the browser",
			Set:     "each user signs in to {name} with an account that may use it",
			Call:    "if each call fails so, connect {name} again with your account there",
			Lacks:   "this call needs more than you have allowed at {name}",
			Absent:  "{name} is not connected with your account there yet",
			Broken:  "{name} has to be connected again with your account there",
			Down:    "its sign-in service cannot be asked",
			Without: "no sign-in is configured (auth.oauth)",
		},
		What: "the token of the sign-in", Exposes: "the access tokens of users",
		Login: "each user signs in to {name} in the browser (auth.mode: oauth_user); there is no sign-in of the " +
			"operator",
		Doctor: "which each person signs in to",
		Next: "Each user signs in to {name} in the browser; clients show the tool {name}__connect until " +
			"then",
		Left:       "each person signs in there themselves",
		LeftAdvice: "junction auth doctor asks where they sign in",
		Why: "{name} may have it: each user signs in there, and sees the tools of their own account " +
			"(upstreams.{name}.auth)",
		Cell: "each user's own: the user signs in on a page",
		Account: AccountWords{Has: "is connected", Lost: "must be connected again", Lacks: "is not connected",
			Give: "Connect", Replace: "Reconnect", End: "Disconnect"},
	},
	{
		Word: AuthClient, Owner: OwnerJunction, Users: true, Keys: true, Kinds: remote,
		AuthKeys: []string{"scopes", "client_id", "client_secret", "private_key_file", "key_id", "assertion_audience",
			"cert_file", "key_file", "issuer", "resource", "audience"},
		AuthNeeds: []string{"client_id", "issuer"},
		AuthOne:   []string{"client_secret", "private_key_file", "cert_file"}, // of oauth.Methods
		Judge:     judgeProof, Carries: true, Stores: true, Renews: true,
		Choose: "if Junction has a client of its own at issuer",
		Advice: Advice{
			Refused: "the server rejects the token of auth.client_id: compare auth.scopes, auth.resource and " +
				"auth.audience with what the server requires",
			Set: "permit auth.client_id at the server, or set auth.scopes, auth.resource or auth.audience as the " +
				"server requires",
			Call:   "if each call fails so, compare auth.scopes and auth.audience with what the server requires",
			Lacks:  "the token lacks a scope{scopes}: permit it for auth.client_id, and add it to auth.scopes",
			Absent: "there is no token yet; check it with: junction auth doctor",
			Broken: "the server rejects each new token of auth.client_id: compare auth.scopes, auth.resource and " +
				"auth.audience with what the server requires",
			Down:    "its authorization server returned no token",
			Without: "no database is open for the token",
		},
		What: "the token of auth.client_id", Exposes: "the access token of Junction",
		Note: "every user who may use it acts with Junction's own client (auth.client_id)",
		Login: "Junction gets the token for {name} with auth.client_id (auth.mode: client_credentials); there is no " +
			"sign-in",
		Doctor: "which Junction gets tokens for with its own client",
		Cell:   "Junction's own, for all callers: its client at the authorization server",
	},
	{
		Word: AuthUserKey, Owner: OwnerSubject, Users: true, Keys: true, Kinds: client.ServerKinds(),
		AuthKeys: []string{"header", "scheme"}, Judge: judgeCarrier,
		Carries: true, Stores: true, Given: true,
		Needs:    SectionCallers,
		NeedsFor: "each caller has a key of their own for the server, so that callers have to be told apart",
		Choose:   "if each caller has a key of their own for the server",
		Advice: Advice{
			Refused: "the server requires authentication: each user gives a key for {name} on the account page",
			Set:     "each user gives a key for {name} that may use it",
			Call:    "if each call fails so, give another key for {name}",
			Lacks:   "this call needs a key for {name} that permits more",
			Absent:  "{name} needs a key of your own",
			Broken:  "{name} does not accept your key; it needs another one",
			Down:    "your key cannot be read",
			Without: "no database is open for the keys of users",
		},
		What: "the key of the user", Exposes: "the keys of users",
		Login: "each user gives a key for {name} on the account page, or you set it with junction users key " +
			"(auth.mode: user_key); there is no sign-in",
		Next: "Each user gives a key for {name} on the account page; for an API key, run: junction users key " +
			"NAME {name}",
		Left:       "each caller has a key of their own for it",
		LeftAdvice: "junction users key --list shows who has one",
		Why: "{name} may have it: each caller has a key of their own for the server, and sees the tools of that key " +
			"(upstreams.{name}.auth)",
		Cell: "each caller's own key for the server: users give it on a page, the operator sets others",
		Account: AccountWords{Has: "has your key", Lost: "needs another key of your own",
			Lacks: "needs a key of your own",
			Give:  "Give a key", Replace: "Replace the key", End: "Delete the key"},
	},
}

// Modes returns the rows of all modes, AuthNone first.
func Modes() []Mode { return slices.Clone(modes) }

// Row returns the facts about a mode. Those of an unknown word are the facts of AuthNone.
func (m AuthMode) Row() Mode {
	for _, row := range modes {
		if row.Word == m {
			return row
		}
	}
	return modes[0]
}

// String returns the word as in the file.
func (m AuthMode) String() string {
	if m == AuthNone {
		return "none"
	}
	return string(m)
}

// ModeWords returns the words of all modes, as in the file.
func ModeWords() []string {
	var words []string
	for _, row := range modes {
		words = append(words, row.Word.String())
	}
	return words
}

// UseToken returns what the operator does with a token that a server gave out: the Token of each row that takes one.
func UseToken() string {
	var ways []string
	for _, row := range modes {
		if row.Token != "" {
			ways = append(ways, row.Token)
		}
	}
	return strings.Join(ways, ", or ")
}

// Words returns the words of the file.
func (AuthMode) Words() []string { return ModeWords() }

// ParseMode returns the mode of a word of the file. The error has no place.
func ParseMode(word string) (AuthMode, error) {
	for _, row := range modes {
		if row.Word.String() == word {
			return row.Word, nil
		}
	}
	return AuthNone, fmt.Errorf("%.40q is none of %s; if the server gave you a token, %s", word,
		strings.Join(ModeWords(), ", "), UseToken())
}

// UnmarshalYAML reads the word.
func (m *AuthMode) UnmarshalYAML(n *yaml.Node) error {
	mode, err := ParseMode(n.Value) // the value of a node that is no scalar is ""
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*m = mode
	return nil
}

// SignInMode returns the mode in which an owner signs in at the server.
func SignInMode(owner Owner) AuthMode {
	i := slices.IndexFunc(modes, func(row Mode) bool { return row.SignIn && row.Owner == owner })
	if i < 0 {
		return AuthNone
	}
	return modes[i].Word
}

// GivenMode returns the mode whose credential the subject gives.
func GivenMode() AuthMode {
	return modes[slices.IndexFunc(modes, func(row Mode) bool { return row.Given })].Word
}

// Has reports whether an upstream of a kind may have the mode.
func (m Mode) Has(kind *client.ServerKind) bool { return slices.Contains(m.Kinds, kind) }

// Shared reports whether all callers use one credential.
func (m Mode) Shared() bool { return m.Owner == OwnerJunction || m.Owner == OwnerOperator }

// About returns a text of the row for an upstream, without missing scopes.
func (m Mode) About(text, upstream string) string { return fill(text, upstream, nil) }

// fill replaces the placeholders of a text.
func fill(text, upstream string, scopes []string) string {
	return strings.NewReplacer("{name}", upstream, "{scopes}", inWords(scopes),
		"{command}", LoginCommand(upstream, scopes...), "{token}", UseToken()).Replace(text)
}

// LoginCommand returns the command that signs the operator in to an upstream, with more scopes. It does
// not name the configuration file, because clients read it, too.
func LoginCommand(upstream string, scopes ...string) string {
	words := []string{"junction", "login", upstream}
	for _, scope := range scopes { // the server has chosen them
		words = append(words, "--scope", scope)
	}
	return shell.Join(words...)
}

// inWords returns scopes for a sentence; "" for none.
func inWords(scopes []string) string {
	if len(scopes) == 0 {
		return ""
	}
	return " of " + strings.Join(scopes, ", ")
}

// askedMode returns the mode that an answer asks for, and whether it asks for one.
func askedMode(status *transport.StatusError) (Mode, bool) {
	answer := AnswerNone
	if status.WantsOAuth() {
		answer = AnswerOAuth
	}
	for _, row := range modes {
		if answer != AnswerNone && row.Asked == answer {
			return row, true
		}
	}
	return Mode{}, false
}
