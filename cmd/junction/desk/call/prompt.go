package call

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/junction/base/cli"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// prompter puts the questions of a server to the person at the terminal. Text of the server is shown
// without control characters.
type prompter struct {
	out   io.Writer
	lines <-chan string // closed at the end of input
}

// newPrompter returns a prompter for a terminal. The reader belongs to the prompter from then on.
func newPrompter(in io.Reader, out io.Writer) *prompter {
	lines := make(chan string)
	go func() { // ends with the input or with the program
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return &prompter{out, lines}
}

// read returns the next line; false means that the person has ended the input.
func (p *prompter) read(ctx context.Context) (string, bool) {
	select {
	case line, ok := <-p.lines:
		return strings.TrimSpace(line), ok
	case <-ctx.Done():
		return "", false
	}
}

// question is the part of an elicitation that prompter reads.
type question struct {
	Mode    string `json:"mode"`
	Message string `json:"message"`
	URL     string `json:"url"`
	Schema  struct {
		Properties fields   `json:"properties"`
		Required   []string `json:"required"`
	} `json:"requestedSchema"`
}

// fields are the values of a form, in the order of the server.
type fields []field

// UnmarshalJSON implements json.Unmarshaler.
func (f *fields) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errors.New("properties is no object"))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		one := field{}
		if err := d.Decode(&one); err != nil {
			return err
		}
		one.name, _ = name.(string)
		*f = append(*f, one)
	}
	return nil
}

// field is one value of a form.
type field struct {
	name        string
	Format      string          `json:"format"`
	Type        string          `json:"type"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Enum        []string        `json:"enum"`
	OneOf       []choice        `json:"oneOf"`
	Default     json.RawMessage `json:"default"`
}

type choice struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// answer is the result of an elicitation.
type answer struct {
	Action  string                     `json:"action"`
	Content map[string]json.RawMessage `json:"content,omitempty"`
}

var declined = answer{Action: string(mcp.ElicitationResponseActionDecline)}

// ask returns the person's answer to an elicitation.
func (p *prompter) ask(ctx context.Context, params json.RawMessage) (answer, error) {
	var q question
	if err := json.Unmarshal(params, &q); err != nil {
		return declined, fmt.Errorf("the server's question is invalid: %w", err)
	}
	fmt.Fprintln(p.out)
	for line := range strings.Lines(q.Message) {
		cli.Tell(p.out, shell.Visible(strings.TrimRight(line, "\r\n"))+"\n")
	}
	if q.Mode == "url" {
		cli.Tellf(p.out, "Open this page, and answer when you are done there:\n\n  %s\n\n", shell.Visible(q.URL))
	}
	accepted := answer{Action: string(mcp.ElicitationResponseActionAccept)}
	if len(q.Schema.Properties) == 0 {
		read := func() (string, error) {
			fmt.Fprint(p.out, "Continue? [y/N] ")
			line, _ := p.read(ctx) // the end of the input declines
			return line, nil
		}
		if agreed, _ := cli.Decide(read, func(line string) { cli.Tellf(p.out, "%s\n", line) }, false); !agreed {
			return declined, nil
		}
		return accepted, nil
	}
	accepted.Content = map[string]json.RawMessage{}
	for _, f := range q.Schema.Properties {
		value, ok := p.field(ctx, f, slices.Contains(q.Schema.Required, f.name))
		if !ok {
			return declined, nil
		}
		if value != nil {
			accepted.Content[f.name] = value
		}
	}
	return accepted, nil
}

// field asks for one value until it is valid. The value is nil if the person left it out; false means
// that the person declines.
func (p *prompter) field(ctx context.Context, f field, required bool) (json.RawMessage, bool) {
	for _, e := range f.Enum {
		f.OneOf = append(f.OneOf, choice{Const: e})
	}
	for i, c := range f.OneOf {
		cli.Tellf(p.out, "  %d) %s\n", i+1, shell.Visible(cmp.Or(c.Title, c.Const)))
	}
	hint := "Ctrl-D declines"
	if len(f.Default) > 0 {
		hint = "default " + shell.Visible(string(f.Default)) + "; " + hint
	} else if required && len(f.OneOf) == 0 {
		hint = "required; " + hint
	} else if !required {
		hint = "optional; " + hint
	}
	if n := len(f.OneOf); n > 0 {
		hint = fmt.Sprintf("a number from 1 to %d; %s", n, hint)
	}
	if example := formats[f.Format].example; example != "" && len(f.OneOf) == 0 {
		hint = "such as " + example + "; " + hint
	}
	for {
		cli.Tellf(p.out, "%s (%s): ", shell.Visible(cmp.Or(f.Title, f.name)), hint)
		line, ok := p.read(ctx)
		switch {
		case !ok:
			fmt.Fprintln(p.out)
			return nil, false
		case line == "" && len(f.Default) > 0:
			return f.Default, true
		case line == "" && !required:
			return nil, true
		}
		value, wanted := f.value(line)
		if wanted == "" {
			return value, true
		}
		if agreed, known := cli.YesOrNo(line); len(f.OneOf) > 0 && known && !agreed {
			return nil, false // none of the choices
		}
		cli.Tellf(p.out, "Write %s.\n", wanted)
	}
}

// value returns the typed value of a line, or a description of what is wanted instead.
func (f *field) value(line string) (value json.RawMessage, wanted string) {
	if len(f.OneOf) > 0 {
		n, err := strconv.Atoi(line)
		if err != nil {
			n = 1 + slices.IndexFunc(f.OneOf, func(c choice) bool { return c.Const == line || c.Title == line })
		}
		if line == "" || n < 1 || n > len(f.OneOf) { // an empty line chooses nothing, also no choice without a title
			return nil, "one of the numbers 1 to " + strconv.Itoa(len(f.OneOf))
		}
		line = f.OneOf[n-1].Const
	}
	switch f.Type {
	case "boolean":
		if agreed, known := cli.YesOrNo(line); known {
			line = strconv.FormatBool(agreed)
		}
		if line = strings.ToLower(line); line == "true" || line == "false" {
			return json.RawMessage(line), ""
		}
		return nil, "y or n"
	case "integer", "number", "array", "object":
		if raw := json.RawMessage(line); isKind(raw, f.Type) {
			return raw, ""
		}
		return nil, articled(f.Type) + ", such as " + examples[f.Type]
	}
	if format, known := formats[f.Format]; known && len(f.OneOf) == 0 && !format.fits(line) {
		return nil, format.what + ", such as " + format.example
	}
	value, _ = json.Marshal(line) // a string
	if line == "" {
		return nil, "a text"
	}
	return value, ""
}

// format is a format that MCP has for strings of a form.
type format struct {
	what, example string
	fits          func(string) bool
}

var formats = map[string]format{
	"date": {"a date", "2027-06-30", func(s string) bool {
		_, err := time.Parse(time.DateOnly, s)
		return err == nil
	}},
	"date-time": {"a time", "2027-06-30T12:00:00Z", func(s string) bool {
		_, err := time.Parse(time.RFC3339, s)
		return err == nil
	}},
	"email": {"an e-mail address", "ann@example.com", func(s string) bool {
		at, err := mail.ParseAddress(s)
		return err == nil && at.Address == s
	}},
	"uri": {"a URL", "https://example.com", func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && u.Scheme != ""
	}},
}

// maxRounds limits how often one call may ask.
const maxRounds = 20

// answers returns the answers to the questions of a result; false means that it asks nothing that can
// be answered here.
func (p *prompter) answers(ctx context.Context, result json.RawMessage) (map[string]answer, bool, error) {
	m := membersOf(result)
	if p == nil || stringOf(m["resultType"]) != "input_required" {
		return nil, false, nil
	}
	requests := membersOf(m["inputRequests"])
	given := map[string]answer{}
	for _, key := range slices.Sorted(maps.Keys(requests)) {
		r := membersOf(requests[key])
		if method := stringOf(r["method"]); method != string(mcp.MethodElicitationCreate) {
			return nil, false, fmt.Errorf("the tool asks for %s, which this command cannot answer", prose.Flat(method))
		}
		a, err := p.ask(ctx, r["params"])
		if err != nil {
			return nil, false, err
		}
		given[key] = a
	}
	return given, len(given) > 0, nil
}
