package search

import (
	"fmt"
	"slices"
	"strconv"

	"junction/upstream/raw"
)

// Class is what a tool may do, as its annotations declare. Missing annotations have the defaults of
// MCP: a tool without annotations is destructive.
type Class uint8

const (
	NoClass     Class = iota
	Destructive       // may delete or overwrite
	Write             // only adds (destructiveHint: false)
	Read              // changes nothing (readOnlyHint: true)
	classes
)

// ClassOf returns the class of a tool.
func ClassOf(definition raw.Object) Class {
	annotations, _ := definition.Object("annotations")
	is := func(hint, value string) bool {
		v, err := annotations.Get(hint)
		return err == nil && string(v) == value
	}
	switch {
	case is("readOnlyHint", "true"):
		return Read
	case is("destructiveHint", "false"):
		return Write
	}
	return Destructive
}

// Tool returns the name of the call tool for the class.
func (c Class) Tool() string {
	// One of each class: else it does not compile.
	var names [classes]string = [...]string{"", "call_destructive_tool", "call_write_tool", "call_read_tool"}
	return names[c]
}

// Named returns the class of a call tool; NoClass for other names.
func Named(tool string) Class {
	for c := Destructive; c <= Read; c++ {
		if c.Tool() == tool {
			return c
		}
	}
	return NoClass
}

// ToolName is the name of the search tool.
const ToolName = "search_tools"

// Own reports whether a tool of Junction has the name.
func Own(name string) bool { return name == ToolName || Named(name) != NoClass }

// OwnNames returns the names of Junction's tools, in the order of their list.
func OwnNames() []string {
	return []string{ToolName, Read.Tool(), Write.Tool(), Destructive.Tool()}
}

// maxQueryText bounds a query, in bytes.
const maxQueryText = 2000

// Limits of the number of tools in one answer.
const (
	DefaultLimit = 5
	MaxLimit     = 50
)

// Definitions returns the definitions of Junction's tools, in the order of OwnNames. They are the
// same for all callers, so that they stay in the prompt caches of models.
func Definitions() [][]byte {
	search := `{"name":"` + ToolName + `","title":"Search tools","description":"Finds tools by name or by words that ` +
		`describe the task. Most tools are not listed: search before you conclude that there is no tool for a task. ` +
		`The answer has the total number of matches and, for each of the best ones, the complete definition and ` +
		`call_with, the tool to call it with. If the right tool is missing, search again with other words or a ` +
		`greater limit.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":` +
		`"Name of a tool, or what the tool should do"},"limit":{"type":"integer","minimum":1,"maximum":` +
		strconv.Itoa(MaxLimit) + `,"default":` + strconv.Itoa(DefaultLimit) + `,"description":"Most definitions in ` +
		`the answer"}},"required":["query"],"additionalProperties":false},"annotations":{"readOnlyHint":true,` +
		`"idempotentHint":true,"openWorldHint":false}}`
	list := [][]byte{[]byte(search)}
	for _, c := range []struct {
		class          Class
		title, does    string
		otherwiseHints string
	}{
		{Read, "Call a tool that reads", "reads and changes nothing (readOnlyHint true)", `"readOnlyHint":true`},
		{Write, "Call a tool that adds", "only adds, and neither deletes nor overwrites (destructiveHint false)",
			`"readOnlyHint":false,"destructiveHint":false`},
		{Destructive, "Call a tool that may delete", "may delete or overwrite (neither readOnlyHint true nor " +
			"destructiveHint false)", `"readOnlyHint":false,"destructiveHint":true`},
	} {
		list = append(list, []byte(`{"name":"`+c.class.Tool()+`","title":"`+c.title+`","description":"Calls a tool `+
			`that `+c.does+`. Tools of another kind are rejected. `+ToolName+` finds names and input schemas.",`+
			`"inputSchema":{"type":"object","properties":{"name":{"type":"string",`+
			`"description":"Name of the tool to call"},"arguments":{"type":"object",`+
			`"description":"Arguments of that tool, as its inputSchema says"}},`+
			`"required":["name"],"additionalProperties":false},"annotations":{`+c.otherwiseHints+
			`,"openWorldHint":true}}`))
	}
	return list
}

// Query is the arguments of the search tool.
type Query struct {
	Text  string
	Limit int
}

// ParseQuery reads the arguments of the search tool. The error is for the client.
func ParseQuery(arguments raw.Object) (q Query, err error) {
	if err := onlyMembers(ToolName, arguments, "query", "limit"); err != nil {
		return q, err
	}
	if q.Text, err = arguments.String("query"); err != nil || plain(q.Text) == "" {
		return q, fmt.Errorf("%s needs a query: the name of a tool, or words that describe the task", ToolName)
	}
	if n := len(q.Text); n > maxQueryText {
		return q, fmt.Errorf("the query of %s has %d bytes, more than %d; send only the words that describe the task",
			ToolName, n, maxQueryText)
	}
	q.Limit = DefaultLimit
	v, err := arguments.Get("limit")
	if err == raw.ErrAbsent {
		return q, nil
	}
	if q.Limit, err = strconv.Atoi(string(v)); err != nil || q.Limit < 1 || q.Limit > MaxLimit {
		return q, fmt.Errorf("limit of %s is no number from 1 to %d", ToolName, MaxLimit)
	}
	return q, nil
}

// Inner returns the name and the arguments of the call in the arguments of a call tool. arguments
// is nil if the call has none. The error is for the client.
func Inner(c Class, outer raw.Object) (name, arguments []byte, err error) {
	if err := onlyMembers(c.Tool(), outer, "name", "arguments"); err != nil {
		return nil, nil, err
	}
	if name, err = outer.Get("name"); err != nil || name[0] != '"' {
		return nil, nil, fmt.Errorf("%s needs a name: the name of the tool to call, as %s returns it", c.Tool(),
			ToolName)
	}
	switch arguments, err = outer.Get("arguments"); {
	case err == raw.ErrAbsent:
		return name, nil, nil
	case err != nil || arguments[0] != '{':
		return nil, nil, fmt.Errorf("arguments of %s is no object; put the arguments of the tool there, not their text",
			c.Tool())
	}
	return name, arguments, nil
}

// onlyMembers returns an error if the arguments of a tool have other members than these, or one of
// them twice.
func onlyMembers(tool string, arguments raw.Object, names ...string) error {
	for m := range arguments.All() {
		name, err := m.Name()
		if err == nil && slices.Contains(names, name) {
			if _, err = arguments.Get(name); err == nil {
				continue
			}
			return fmt.Errorf("the argument %s of %s is ambiguous; send it once", name, tool)
		}
		hint := ""
		if tool != ToolName {
			hint = "; put the arguments of the tool to call into arguments"
		}
		return fmt.Errorf("%s has no argument %.60s%s", tool, m.Key, hint)
	}
	return nil
}

// Rejection returns the sentence for a call of a tool with the call tool of another class.
func Rejection(name string, is, called Class) string {
	// One of each class: else it does not compile.
	var effects [classes]string = [...]string{"", "may delete or overwrite", "changes something", "only reads"}
	what := effects[is]
	return fmt.Sprintf("%s was not called: the tool %s. Call it with %s instead of %s.", name, what, is.Tool(),
		called.Tool())
}

// maxAnswer bounds the definitions in an answer, in bytes. The first one is always complete.
const maxAnswer = 512 << 10

// Answer collects the definitions for the answer of the search tool.
type Answer struct{ tools []byte }

// Add appends a definition with its class, and reports whether there is room for more.
func (a *Answer) Add(c Class, definition []byte) bool {
	if len(a.tools) > 0 {
		if len(a.tools)+len(definition) > maxAnswer {
			return false
		}
		a.tools = append(a.tools, ',')
	}
	a.tools = append(a.tools, `{"call_with":"`+c.Tool()+`","definition":`...)
	a.tools = append(append(a.tools, definition...), '}')
	return true
}

// Text returns the text of the result of the search tool. total is the number of matches. unknown
// are the upstreams whose tools are not known yet.
func (a *Answer) Text(total int, unknown []string) string {
	text := fmt.Sprintf(`{"total":%d,"tools":[%s]`, total, a.tools)
	if len(unknown) > 0 {
		names := ""
		for _, name := range unknown {
			names += "," + string(raw.Quote(name))
		}
		text += fmt.Sprintf(`,"not_searched":[%s],"note":"The servers in not_searched have not listed their tools `+
			`yet. Search again later."`, names[1:])
	}
	return text + "}"
}
