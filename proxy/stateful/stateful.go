// Package stateful has the messages about a call that one member makes at another, which has the state
// of the server (stateful in the configuration). Policy, approvals, questions to the user, log and audit
// stay at the member that has the request of the client. The owner of the state makes only the call of
// the server, unless its own policies deny it then:
//
//	call      the request of the member: Call, as two frames
//	frames    its answer: notifications and questions of the server, then the result or an error
//	answer    a request of its own: the answer of the client to a question, or its progress
//
// A frame has a kind, a length and a text. All texts of client and server are carried as they are.
package stateful

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// The kinds of frames.
const (
	frameHead     = 'h' // of a Call, as JSON
	frameParams   = 'p' // of a Call
	frameNotify   = 'n' // method, line break, params
	frameExtend   = 'x' // a notification of an extension: its method as JSON, line break, params; no params if none
	frameQuestion = 'q' // number, line break, method, line break, params; no params if the server sent none
	frameCancel   = 'c' // number of a question that the server has cancelled
	frameRooted   = 'k' // upstream.Call.Rooted for the next round, as JSON, before the result
	frameResult   = 'r' // of the call: its type, line break, result; of a question: the answer
	frameError    = 'e' // failed, as JSON
)

// Call is a call at the owner of the state.
type Call struct {
	ID       string // random, for answers to questions
	Upstream string
	Session  string
	Window   string `json:",omitempty"`
	Method   string
	Name     string
	Member   []string
	Header   []client.HeaderField
	LogLevel string
	Profile  client.Profile
	Era      client.Era
	// Extensions are those that the client has declared.
	Extensions []string `json:",omitempty"`
	// Continues and Rooted are as in upstream.Call, and Folders are the paths of its Folders. The owner decides
	// again whether the caller may have them.
	Continues bool
	Rooted    []string `json:",omitempty"`
	Folders   []string `json:",omitempty"`
	// Item, Asked and Exposed let the owner judge the call, too: see proxy.Sent.
	Item    policy.Item
	Asked   bool   `json:",omitempty"`
	Exposed string `json:",omitempty"`
	Params  []byte `json:"-"`
}

// Of returns the message of a call.
func Of(id, name string, c *upstream.Call) *Call {
	own := &Call{ID: id, Upstream: name, Session: c.Session, Window: c.Window, Method: c.Method, Name: c.Name,
		Member: c.Member, Header: c.Header, LogLevel: c.LogLevel, Profile: c.Profile, Era: c.Era,
		Continues: c.Continues, Rooted: c.Rooted, Folders: c.Folders.Paths(), Params: c.Params.Text()}
	if e, ok := c.Peer.(client.Extended); ok {
		own.Extensions = e.Extensions()
	}
	return own
}

// Text returns the bytes of the message.
func (c *Call) Text() ([]byte, error) {
	head, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	b := appendFrame(make([]byte, 0, len(head)+len(c.Params)+2*frameHeader), frameHead, head)
	return appendFrame(b, frameParams, c.Params), nil
}

// errMessage means that a message between members is not of this version of the program.
var errMessage = errors.New("the message of another replica cannot be read")

// ParseCall reads the message of a call. The Call aliases the text.
func ParseCall(text []byte) (*Call, error) {
	r := bytes.NewReader(text)
	kind, head, err := readFrame(r, nil)
	if err != nil || kind != frameHead {
		return nil, errMessage
	}
	c := new(Call)
	if json.Unmarshal(head, c) != nil || c.ID == "" {
		return nil, errMessage
	}
	if rest := text[len(text)-r.Len():]; len(rest) >= frameHeader && rest[0] == frameParams &&
		int64(binary.BigEndian.Uint32(rest[1:])) == int64(len(rest)-frameHeader) {
		c.Params = rest[frameHeader:]
		return c, nil
	}
	return nil, errMessage
}

// Request returns the call for the server. peer gets what the server sends meanwhile. depth is how deep
// the params may be nested.
func (c *Call) Request(principal, account string, depth int, peer client.Peer) (*upstream.Call, error) {
	own := &upstream.Call{Call: client.Call{Method: c.Method, Name: c.Name, Member: c.Member, Header: c.Header,
		LogLevel: c.LogLevel, Profile: c.Profile, Principal: principal, Session: c.Session, Peer: peer},
		Account: account, Era: c.Era, Window: c.Window, Continues: c.Continues, Rooted: c.Rooted}
	if len(c.Params) == 0 {
		return own, nil
	}
	var err error
	own.Params, err = raw.ParseDepth(c.Params, depth)
	return own, err
}

// Holds returns what decides which state the call has at a member where the caller is the principal and the
// account.
func (c *Call) Holds(principal, account string) upstream.Window {
	return upstream.Window{Session: cmp.Or(c.Session, c.Window), Principal: principal, Account: account,
		Folders: c.Folders}
}

// failed is an error of a call or of a question.
type failed struct {
	RPC    []byte                `json:",omitempty"` // a message with a *jsonrpc.Error
	SignIn *upstream.SignInError `json:",omitempty"`
	Kind   client.Kind           `json:",omitempty"` // of an *upstream.Error
	Text   string                `json:",omitempty"`
	Words  []string              `json:",omitempty"` // of the server, before Text shortens them
}

// maxWords bounds one of Words, in bytes.
const maxWords = 16 << 10

// distantError is the Err of an *upstream.Error of another member, which does not know what the caller
// must not read.
type distantError struct {
	text  string
	words []string
}

func (e *distantError) Error() string { return e.text }

// Clean implements transport.Cleaner.
func (e *distantError) Clean(clean func(string) string) string {
	for _, words := range e.words {
		if clean(words) != words {
			return "the words of the server are not shown, because the policy redacts them"
		}
	}
	return clean(e.text)
}

// depth is how deep results and errors may be nested. The owner has compared them with its own limit.
const depth = 10_000

// failure returns the frame of an error. text makes the text of an error that is none of an upstream.
func failure(err error, text func(error) string) []byte {
	var f failed
	ours, isOurs := errors.AsType[*upstream.Error](err)
	peer, isPeer := errors.AsType[*jsonrpc.Error](err)
	signIn, isSignIn := errors.AsType[*upstream.SignInError](err)
	switch {
	case isSignIn:
		f.SignIn = signIn
	case isOurs:
		f.Kind, f.Text = ours.Kind, public(ours)
		ours.Clean(func(words string) string {
			if words != f.Text && !slices.Contains(f.Words, words) {
				f.Words = append(f.Words, words[:min(len(words), maxWords)])
			}
			return words
		})
	case isPeer:
		f.RPC = jsonrpc.AppendError(nil, "1", peer)
	default:
		f.Kind, f.Text = client.KindUnavailable, text(err)
	}
	b, err := json.Marshal(f)
	if err != nil { // cannot happen
		b = []byte(`{}`)
	}
	return appendFrame(nil, frameError, b)
}

// public returns the text of an error for the client, without the name of the upstream, which the other
// member puts before it again.
func public(e *upstream.Error) string {
	text := e.Public()
	if prefix := "upstream " + e.Upstream + ": "; len(text) > len(prefix) && text[:len(prefix)] == prefix {
		return text[len(prefix):]
	}
	return text
}

// errorOf returns the error of a frame about a call of an upstream.
func errorOf(name string, text []byte) error {
	var f failed
	if json.Unmarshal(text, &f) != nil {
		return errMessage
	}
	switch {
	case f.SignIn != nil:
		return f.SignIn
	case f.RPC != nil:
		m, err := jsonrpc.Parse(f.RPC, depth)
		if err != nil || m.Error == nil {
			return errMessage
		}
		return m.Error
	}
	return &upstream.Error{Upstream: name, Kind: f.Kind, Err: &distantError{f.Text, f.Words}}
}

// frameHeader is the size of the kind and the length.
const frameHeader = 5

func appendFrame(b []byte, kind byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b = binary.BigEndian.AppendUint32(append(b, kind), uint32(n))
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// small is the size up to which a frame is read without a share of the memory of the caller.
const small = 64 << 10

// readFrame reads a frame. memory approves larger ones; nil approves none.
func readFrame(r io.Reader, memory client.Memory) (kind byte, text []byte, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	if n > small {
		if memory == nil {
			return 0, nil, errMessage
		}
		if err := memory.Reserve(n); err != nil {
			return 0, nil, err
		}
	}
	text = make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return head[0], text, nil
}

// reader returns a buffered reader of the frames of an answer.
func reader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 4<<10) }
