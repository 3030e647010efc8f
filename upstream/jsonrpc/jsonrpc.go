// Package jsonrpc reads and writes JSON-RPC 2.0 messages and the framing of server-sent events.
//
// It reads only the envelope: the kind of message, its id and its method. Params, results and
// errors keep the bytes of their sender.
package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"junction/upstream/raw"
)

// ID is the JSON text of a request's id: 1 and "1" differ, and large numbers are exact. A
// notification has the id "".
type ID string

// NumberID returns the id for one of Junction's own requests.
func NumberID(n uint64) ID { return ID(strconv.FormatUint(n, 10)) }

// Message is a request (ID and Method), a notification (Method only) or a response (ID, and Result
// or Error). Its slices alias the text that it was parsed from.
type Message struct {
	ID     ID
	Method string
	Params []byte // an object or an array; nil if absent or null
	Result []byte
	Error  *Error

	// Body contains the members of Params or Result if that is an object; otherwise it is not
	// present. Parse sets it, and keeps the _meta objects and content arrays in it, so that
	// (raw.Object).Object and Elements return them without a second scan. Append uses Params and
	// Result, not Body.
	Body raw.Object
}

// IsRequest, IsNotification and IsResponse distinguish the three kinds of messages.
func (m *Message) IsRequest() bool      { return m.Method != "" && m.ID != "" }
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == "" }
func (m *Message) IsResponse() bool     { return m.Method == "" }

// Error is a JSON-RPC error. Parse returns the peer's error.
type Error struct {
	Code    int64
	Message string
	Data    []byte // JSON; nil if absent

	text []byte // the whole object as the peer sent it
}

// WithCode returns the error with another code. The peer's text is otherwise kept.
func (e *Error) WithCode(code int64) *Error {
	other := e.with("code", strconv.AppendInt(nil, code, 10))
	other.Code = code
	return other
}

// WithData returns the error with other data. The peer's text is otherwise kept.
func (e *Error) WithData(data []byte) *Error {
	other := e.with("data", data)
	other.Data = data
	return other
}

// WithMessage returns the error with another message. The peer's text is otherwise kept.
func (e *Error) WithMessage(message string) *Error {
	other := e.with("message", raw.Quote(message))
	other.Message = message
	return other
}

// with returns a copy of the error with another value of a member in the text.
func (e *Error) with(member string, value []byte) *Error {
	other := *e
	if text, err := raw.Set(e.text, value, member); err == nil { // an error of our own has no text
		other.text = text
	}
	return &other
}

// Clone returns a copy that does not alias the parsed text. The copy of nil is nil.
func (e *Error) Clone() *Error {
	if e == nil {
		return nil
	}
	return &Error{Code: e.Code, Message: e.Message, Data: bytes.Clone(e.Data), text: bytes.Clone(e.text)}
}

func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// ErrInvalid means that a text is JSON, but not a JSON-RPC message.
var ErrInvalid = errors.New("not a JSON-RPC message")

// Parse reads one message whose arrays and objects are nested at most depth deep. It scans the text
// once, including Body; m aliases the text.
//
// Parse returns a *raw.SyntaxError if the text is not JSON, and raw.ErrDepth if it is nested too
// deeply. It returns raw.ErrMany if the envelope, the params or the result have too many members.
// It returns raw.ErrAmbiguous if a member of the envelope occurs twice or in another letter case,
// or if the method is not UTF-8. Everything else is ErrInvalid, including arrays (batches). With an
// error, m has only the id and the method, if they could be read.
//
// A byte order mark before the text is ignored (RFC 8259, section 8.1).
func Parse(text []byte, depth int) (m Message, err error) {
	err = m.parse(text, depth, false)
	return m, err
}

// ParseSingle is Parse for the messages of a server. It also reads a batch of one message, which servers
// of 2025-03-26 may send (basic/index#batching), and a notification whose id is null.
func ParseSingle(text []byte, depth int) (m Message, err error) {
	if err = m.parse(text, depth, true); err == nil || !IsBatch(text) {
		return m, err
	}
	if items, many := Batch(text, 1); many == nil && len(items) > 0 {
		err = m.parse(items[0], depth, true)
	}
	return m, err
}

// IsBatch reports whether a text begins like an array.
func IsBatch(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(WithoutMark(text), " \t\r\n"), []byte{'['})
}

// Batch returns the texts of at most most messages of an array. It returns the errors of raw.ElementsWithin.
func Batch(text []byte, most int) ([][]byte, error) {
	return raw.ElementsWithin(WithoutMark(text), most)
}

// WithoutMark returns the text without a byte order mark.
func WithoutMark(text []byte) []byte {
	if len(text) >= len(mark) && string(text[:len(mark)]) == mark {
		return text[len(mark):]
	}
	return text
}

// mark is a byte order mark in UTF-8.
const mark = "\ufeff"

// kept lists the members whose contents Body keeps.
var kept = []string{"params", "result", "_meta", "content"}

// parse is Parse, or, for a message of a server, ParseSingle without batches. m must be zero, or
// left by a parse that failed.
func (m *Message) parse(text []byte, depth int, server bool) error {
	err := m.read(WithoutMark(text), depth, server)
	if err != nil {
		*m = Message{ID: m.ID, Method: m.Method}
	}
	return err
}

// envelope are the members of a message, in the order of the constants.
var envelope = raw.NewNames("jsonrpc", "id", "method", "params", "result", "error")

const (
	atVersion = iota
	atID
	atMethod
	atParams
	atResult
	atError
)

// read is parse; after an error, m may have more than parse leaves.
func (m *Message) read(text []byte, depth int, server bool) error {
	o, err := raw.ParseDepth(text, depth, kept...)
	if err != nil {
		if err == raw.ErrAbsent {
			err = fmt.Errorf("%w: no object", ErrInvalid)
		}
		return err
	}
	found := o.Find(envelope)
	id, err := m.readID(&found)
	if err != nil {
		return err
	}
	if err := m.readMethod(&found); err != nil {
		return err
	}
	if v, err := found.Get(atVersion); err != nil || string(v) != `"2.0"` {
		return invalid("jsonrpc", err, `is not "2.0"`)
	}
	if err := m.readParams(&found); err != nil {
		return err
	}
	if err := m.readAnswer(&found); err != nil {
		return err
	}
	if server && string(id) == "null" && m.Method != "" {
		id = nil
	}
	if err := m.check(id); err != nil {
		return err
	}
	switch {
	case m.Result != nil:
		m.Body, err = found.Object(atResult)
	case m.Params != nil:
		m.Body, err = found.Object(atParams)
	}
	if err == raw.ErrMany {
		return err
	}
	return nil
}

// readID reads the id, and returns its value in the text, which may be null; nil means that there is none.
func (m *Message) readID(found *raw.Found) (id []byte, err error) {
	id, err = found.Get(atID)
	switch {
	case err == raw.ErrAbsent:
	case err != nil:
		return nil, fmt.Errorf("id: %w", err)
	case id[0] == '"' || isInteger(id):
		m.ID = ID(id)
	case string(id) != "null":
		return nil, fmt.Errorf("%w: the id is neither a string nor an integer", ErrInvalid)
	}
	return id, nil
}

func (m *Message) readMethod(found *raw.Found) error {
	switch method, err := found.Get(atMethod); {
	case err == raw.ErrAbsent:
	case err != nil:
		return fmt.Errorf("method: %w", err)
	// the most frequent method; the constant avoids an allocation
	case string(method) == `"tools/call"`:
		m.Method = "tools/call"
	default:
		if m.Method, err = raw.String(method); err != nil && err != raw.ErrAbsent {
			return fmt.Errorf("method: %w", err)
		}
		if m.Method == "" {
			return fmt.Errorf("%w: the method is no name", ErrInvalid)
		}
	}
	return nil
}

func (m *Message) readParams(found *raw.Found) (err error) {
	if m.Params, err = found.Get(atParams); err != nil && err != raw.ErrAbsent {
		return fmt.Errorf("params: %w", err)
	}
	if string(m.Params) == "null" { // some clients and servers send null instead of no params
		m.Params = nil
	}
	if m.Params != nil && m.Params[0] != '{' && m.Params[0] != '[' {
		return fmt.Errorf("%w: params are neither an object nor an array", ErrInvalid)
	}
	return nil
}

// readAnswer reads the result and the error.
func (m *Message) readAnswer(found *raw.Found) (err error) {
	if m.Result, err = found.Get(atResult); err != nil && err != raw.ErrAbsent {
		return fmt.Errorf("result: %w", err)
	}
	failure, err := found.Get(atError)
	if err != nil && err != raw.ErrAbsent {
		return fmt.Errorf("error: %w", err)
	}
	switch {
	case m.Result != nil && string(failure) == "null": // some servers write both members, one of them null
		failure = nil
	case failure != nil && string(m.Result) == "null":
		m.Result = nil
	}
	if failure == nil {
		return nil
	}
	m.Error, err = ParseError(failure)
	return err
}

// check rejects messages that are of no kind, or of two kinds.
func (m *Message) check(id []byte) error {
	answers := 0
	if m.Result != nil {
		answers++
	}
	if m.Error != nil {
		answers++
	}
	switch {
	case m.Method != "" && answers > 0:
		return fmt.Errorf("%w: a request and a response at once", ErrInvalid)
	case m.Method != "" && id != nil && m.ID == "":
		return fmt.Errorf("%w: the id is null", ErrInvalid)
	case m.Method != "":
		return nil
	case answers == 0:
		return fmt.Errorf("%w: neither method nor result nor error", ErrInvalid)
	case answers == 2:
		return fmt.Errorf("%w: result and error at once", ErrInvalid)
	case m.ID == "" && m.Error == nil:
		return fmt.Errorf("%w: a result without id", ErrInvalid)
	}
	return nil
}

// invalid returns the error for a member that is missing or has an invalid value; err is the error
// of reading it, or nil.
func invalid(member string, err error, what string) error {
	if err == nil || err == raw.ErrAbsent {
		return fmt.Errorf("%w: %s %s", ErrInvalid, member, what)
	}
	return fmt.Errorf("%s: %w", member, err)
}

// ParseError reads an error object. Peers are careless here, so only an integer code is required. A code
// such as -32603.0 or "-32603" becomes the number in digits, also in the text.
// If the message cannot be read, e.Message is empty but the text is relayed unchanged: it is for
// people and not used for decisions.
func ParseError(text []byte) (*Error, error) {
	o, err := raw.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the error is no object", ErrInvalid)
	}
	code, err := o.Get("code")
	if err != nil {
		return nil, invalid("error.code", err, "is missing")
	}
	e := &Error{text: text}
	if e.Code, err = strconv.ParseInt(string(code), 10, 64); err != nil {
		plain := ID(code).Value() // clients may reject what the server wrote
		if e.Code, err = strconv.ParseInt(string(plain), 10, 64); err != nil {
			return nil, fmt.Errorf("%w: error.code is no whole number", ErrInvalid)
		}
		e = e.WithCode(e.Code)
	}
	e.Message, _ = o.String("message")
	if e.Data, err = o.Get("data"); err != nil && err != raw.ErrAbsent {
		return nil, fmt.Errorf("error.data: %w", err)
	}
	return e, nil
}

// AppendRequest appends a request, or a notification if id is "". Line breaks in params are kept.
func AppendRequest(b []byte, id ID, method string, params []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	b = raw.AppendQuote(append(b, `,"method":`...), method)
	if len(params) > 0 {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, '}')
}

// ResponseHead appends the part of a response before the result. The caller writes the result and
// then '}', so that a large result is not copied.
func ResponseHead(b []byte, id ID) []byte {
	return append(append(append(b, `{"jsonrpc":"2.0","id":`...), id...), `,"result":`...)
}

// AppendError appends an error response. An id of "" is omitted: the request's id could not be
// read.
func AppendError(b []byte, id ID, e *Error) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	return append(e.Append(append(b, `,"error":`...)), '}')
}

// Append appends the error object. The bytes of a peer's error are unchanged.
func (e *Error) Append(b []byte) []byte {
	if e.text != nil {
		return append(b, e.text...)
	}
	b = strconv.AppendInt(append(b, `{"code":`...), e.Code, 10)
	b = raw.AppendQuote(append(b, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	return append(b, '}')
}

// Append appends the message. Line breaks in params, result and error are kept.
func (m *Message) Append(b []byte) []byte {
	switch {
	case m.Method != "":
		return AppendRequest(b, m.ID, m.Method, m.Params)
	case m.Error != nil:
		return AppendError(b, m.ID, m.Error)
	}
	return append(append(ResponseHead(b, m.ID), m.Result...), '}')
}
