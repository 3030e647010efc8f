package view

import (
	"bytes"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file replaces own URIs by exposed URIs where the protocol has a URI of a resource: in
// definitions of tools, in results and in errors. Texts and structured content do not change, since
// only their reader knows which parts are URIs. All other bytes do not change either.
//
// An ambiguous member is an error here, because an unchanged URI could belong to another upstream.

// expose returns the exposed URI for an own URI of the target's upstream. The URI that the client
// requested returns in the client's form.
func (t *Target) expose(own string) string {
	switch {
	case t.Bare:
		return own
	case own == t.Name && !t.named():
		return t.Exposed
	}
	return ExposeURI(t.Backend.Name(), own)
}

// The methods of the extension for skills (SEP-2640).
const (
	MethodSkillsList    mcp.MCPMethod = "skills/list"
	MethodSkillsGet     mcp.MCPMethod = "skills/get"
	MethodDirectoryRead mcp.MCPMethod = "resources/directory/read"
)

// RenameResult returns the result of a method with exposed URIs; o itself if it has no URI to
// rename.
func (t *Target) RenameResult(method string, o raw.Object) (raw.Object, error) {
	if t.Bare {
		return o, nil
	}
	var edits []raw.Edit
	var err error
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall:
		edits, err = t.renameList(o, "content", t.renameContent)
	case mcp.MethodPromptsGet:
		edits, err = t.renameList(o, "messages", inObject(func(m raw.Object) ([]raw.Edit, error) {
			content, err := t.renameList(m, "content", t.renameContent)
			if err == nil && content == nil {
				content, err = t.renameMember(m, "content", t.renameContent)
			}
			return content, err
		}))
	case mcp.MethodResourcesRead:
		edits, err = t.renameList(o, "contents", t.renameURI)
	case MethodDirectoryRead:
		edits, err = t.renameList(o, "resources", t.renameURI)
	case MethodSkillsGet:
		edits, err = t.renameMember(o, "skill", t.renameEntry)
	default:
		return o, nil
	}
	if err != nil {
		return o, err
	}
	meta, err := t.renameMeta(o)
	if err != nil {
		return o, err
	}
	if edits = append(edits, meta...); len(edits) == 0 {
		return o, nil
	}
	return o.With(edits...)
}

// renameList renames each element of an array member.
func (t *Target) renameList(o raw.Object, member string, rename func([]byte) ([]byte, error)) ([]raw.Edit, error) {
	elements, err := o.Elements(member)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	list, err := o.Get(member)
	if err != nil {
		return nil, err
	}
	var out []byte // the part of list before from, renamed
	from, at := 0, 1
	for _, e := range elements {
		for list[at] != e[0] { // white space and a comma
			at++
		}
		renamed, err := rename(e)
		if err != nil {
			return nil, err
		}
		if renamed != nil {
			out = append(append(out, list[from:at]...), renamed...)
			from = at + len(e)
		}
		at += len(e)
	}
	if from == 0 {
		return nil, nil
	}
	return []raw.Edit{{Name: member, Value: append(out, list[from:]...)}}, nil
}

// renameMember renames one member.
func (t *Target) renameMember(o raw.Object, member string, rename func([]byte) ([]byte, error)) ([]raw.Edit, error) {
	v, err := o.Get(member)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	renamed, err := rename(v)
	if err != nil || renamed == nil {
		return nil, err
	}
	return []raw.Edit{{Name: member, Value: renamed}}, nil
}

// renameContent renames the URI of a content block: a link or an embedded resource. It returns nil
// if there is none. The prefix check is for speed, because almost all blocks are texts.
func (t *Target) renameContent(block []byte) ([]byte, error) {
	if bytes.HasPrefix(block, []byte(`{"type":"text"`)) {
		return nil, nil
	}
	return inObject(func(o raw.Object) ([]raw.Edit, error) {
		switch kind, err := o.String("type"); {
		case err != nil:
			return nil, ignoreAbsent(err)
		case kind == "resource_link":
			return t.renameMember(o, "uri", t.renameText)
		case kind == "resource":
			return t.renameMember(o, "resource", t.renameURI)
		}
		return nil, nil
	})(block)
}

// renameURI renames the uri of an object.
func (t *Target) renameURI(object []byte) ([]byte, error) {
	return inObject(func(o raw.Object) ([]raw.Edit, error) { return t.renameMember(o, "uri", t.renameText) })(object)
}

// renameText renames a URI in a JSON string; nil if it does not change.
func (t *Target) renameText(text []byte) ([]byte, error) {
	own, err := raw.String(text)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	if exposed := t.expose(own); exposed != own {
		return raw.Quote(exposed), nil
	}
	return nil, nil
}

// renameMeta returns the edit that renames the URIs in the _meta of a definition or a result: those
// of MCP Apps and of the older vendor key.
func (t *Target) renameMeta(o raw.Object) ([]raw.Edit, error) {
	return t.renameMember(o, "_meta", inObject(func(meta raw.Object) ([]raw.Edit, error) {
		edits, err := t.renameMember(meta, "ui", inObject(func(ui raw.Object) ([]raw.Edit, error) {
			return t.renameMember(ui, "resourceUri", t.renameText)
		}))
		for _, key := range [...]string{"ui/resourceUri", "openai/outputTemplate"} {
			if err != nil {
				return nil, err
			}
			var more []raw.Edit
			more, err = t.renameMember(meta, key, t.renameText)
			edits = append(edits, more...)
		}
		return edits, err
	}))
}

// RenameError returns an upstream's error with the exposed URI.
func (t *Target) RenameError(e *jsonrpc.Error) *jsonrpc.Error {
	if t.Bare || len(e.Data) == 0 {
		return e
	}
	renamed, err := t.renameURI(e.Data)
	if renamed == nil && err != raw.ErrAmbiguous {
		return e
	}
	return e.WithData(renamed) // an ambiguous data is dropped
}

// NotFound converts a legacy upstream's error for an unknown resource for a modern client: with the
// modern code, and with the URI of the request.
func (t *Target) NotFound(e *jsonrpc.Error) *jsonrpc.Error {
	if e = e.WithCode(mcp.INVALID_PARAMS); len(e.Data) == 0 && !t.named() {
		return e.WithData(URIData(t.Exposed))
	}
	return e
}

// inObject returns a function that makes the edits of an object. That function returns nil for a
// text that is no object, or that does not change.
func inObject(edit func(raw.Object) ([]raw.Edit, error)) func(text []byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		o, err := raw.Parse(text)
		if err != nil {
			return nil, ignoreAbsent(err)
		}
		edits, err := edit(o)
		if err != nil || len(edits) == 0 {
			return nil, err
		}
		return o.Splice(edits...)
	}
}

// ignoreAbsent returns nil for raw.ErrAbsent. An absent or mistyped value has no URI for clients.
func ignoreAbsent(err error) error {
	if err == raw.ErrAbsent {
		return nil
	}
	return err
}

func URIData(uri string) []byte { return append(raw.AppendQuote([]byte(`{"uri":`), uri), '}') }
