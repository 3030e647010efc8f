package proxy

import (
	"bytes"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file removes members of results that are null and optional. Many servers write them, the Python
// SDK reads them, and clients with the TypeScript SDK reject the whole result. Lists are mended in the
// same way (package definition).

// nullable are the members of the results of a method that such clients reject if they are null.
type nullable struct {
	members []string
	list    string   // an array of objects
	inside  string   // the member of each with the object that is meant; "" for the object itself
	each    []string // members of these objects
}

var (
	blockMembers = []string{"annotations", "_meta", "title", "description", "mimeType", "size", "icons"}
	nullables    = map[mcp.MCPMethod]nullable{
		mcp.MethodToolsCall:          {[]string{"_meta", "isError", "structuredContent"}, "content", "", blockMembers},
		mcp.MethodPromptsGet:         {[]string{"_meta", "description"}, "messages", "content", blockMembers},
		mcp.MethodResourcesRead:      {[]string{"_meta"}, "contents", "", []string{"mimeType", "_meta"}},
		mcp.MethodCompletionComplete: {[]string{"_meta"}, "", "", nil},
	}
)

// withoutNulls returns a result for the client without its members that are null and optional.
// structuredContent may be null in the modern era.
func (x *Exchange) withoutNulls(o raw.Object) (raw.Object, error) {
	if text := o.Text(); len(text) <= 2*nullWindow && !memberIsNull(text) {
		return o, nil
	}
	row, ok := nullables[mcp.MCPMethod(x.Msg.Method)]
	if !ok {
		return o, nil
	}
	var edits []raw.Edit
	for m := range o.All() {
		if string(m.Value) != "null" {
			continue
		}
		name, err := m.Name()
		if err != nil || !slices.Contains(row.members, name) ||
			name == "structuredContent" && x.Era == client.EraModern {
			continue
		}
		edits = append(edits, raw.Edit{Name: name})
	}
	if text := listWithoutNulls(o, row); text != nil {
		edits = append(edits, raw.Edit{Name: row.list, Value: text})
	}
	if len(edits) == 0 {
		return o, nil
	}
	return o.With(edits...)
}

// listWithoutNulls returns the list of a result without the members of its objects that are null and
// optional; nil if there are none.
func listWithoutNulls(o raw.Object, row nullable) []byte {
	// The elements of content are known from the scan of the message. The others are looked for only if the
	// beginning or the end of the list has a null.
	if list, err := o.Get(row.list); err != nil || row.list != "content" && !mayHaveNull(list) {
		return nil
	}
	items, err := o.Elements(row.list)
	if err != nil {
		return nil
	}
	var changed [][]byte
	for i, item := range items {
		if !mayHaveNull(item) {
			continue
		}
		text, err := itemWithoutNulls(item, row)
		if err != nil || text == nil {
			continue
		}
		if changed == nil {
			changed = slices.Clone(items)
		}
		changed[i] = text
	}
	if changed == nil {
		return nil
	}
	return jsonArray(changed)
}

func itemWithoutNulls(item []byte, row nullable) ([]byte, error) {
	object := item
	if row.inside != "" {
		object, _ = raw.Get(item, row.inside)
	}
	o, err := raw.Parse(object)
	if err != nil {
		return nil, err
	}
	var edits []raw.Edit
	for _, name := range row.each {
		if v, err := o.Get(name); err == nil && string(v) == "null" {
			edits = append(edits, raw.Edit{Name: name})
		}
	}
	if len(edits) == 0 {
		return nil, nil
	}
	text, err := o.Splice(edits...)
	if err != nil || row.inside == "" {
		return text, err
	}
	return raw.Set(item, text, row.inside)
}

// nullWindow is how many bytes at the beginning and at the end of an object mayHaveNull looks at. What is
// between them in a larger object is nearly always one text.
const nullWindow = 512

// mayHaveNull reports whether an object may have a member that is null. It costs little where there is none.
func mayHaveNull(object []byte) bool {
	if len(object) > 2*nullWindow {
		return memberIsNull(object[:nullWindow]) || memberIsNull(object[len(object)-nullWindow:])
	}
	return memberIsNull(object)
}

// memberIsNull looks for a name that is followed by null. Within a text, the quote of a name is escaped.
func memberIsNull(text []byte) bool {
	for {
		at := bytes.Index(text, []byte("null"))
		if at < 0 {
			return false
		}
		before := bytes.TrimRight(text[:at], " \t\r\n")
		if name, ok := bytes.CutSuffix(before, []byte{':'}); ok {
			name = bytes.TrimRight(name, " \t\r\n")
			if n := len(name); n > 1 && name[n-1] == '"' && name[n-2] != '\\' {
				return true
			}
		}
		text = text[at+len("null"):]
	}
}
