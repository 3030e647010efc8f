package redact

import (
	"slices"
	"time"
)

// This file lists what belongs to the protocol and is not redacted. Everything else is redacted.

// place is a kind of JSON object or array: it decides which members belong to the protocol. In the
// zero value none do.
type place uint8

const (
	foreign  place = iota // structured content, and every member that MCP does not define
	protocol              // an object of MCP, or a JSON Schema
	meta                  // _meta
	named                 // an object with names of the server and values of the protocol
	asked                 // inputRequests: like named, and the client returns the names
	form                  // the schema of an elicitation: the client returns names and choices
	fields                // the properties of a form
	failure               // an error of JSON-RPC
)

// member is what the protocol says about the members of one name. Their names are never redacted.
// Their values are redacted, except the words, moments and numbers that are listed here.
type member struct {
	inside place    // of an object or an array
	words  []string // values of the protocol
	moment bool     // values may be a time (RFC 3339)
	number bool     // values may be any number
	uri    bool     // values are URIs, in which the mark has another form
	shown  bool     // of a form: the user only reads the value
}

// keeps reports whether the inside of a string is a value of the protocol. It must be written
// without escapes.
func (m *member) keeps(value []byte) bool {
	if m == nil {
		return false
	}
	if m.moment {
		_, err := time.Parse(time.RFC3339, string(value))
		return err == nil
	}
	return slices.ContainsFunc(m.words, func(word string) bool { return word == string(value) })
}

// readOnly reports whether the user of a form only reads the value of a member, or whether the
// members in the value are judged one by one.
func (m *member) readOnly() bool { return m != nil && (m.shown || m.inside != foreign) }

// rule returns what the protocol says about a member at a place; nil for other members.
func (at place) rule(name []byte) *member {
	switch at {
	case protocol, form:
		return members[string(name)]
	case meta:
		return metaMembers[string(name)]
	case failure:
		return failureMembers[string(name)]
	}
	return nil
}

// inside returns the place of the value of a member at this place. m is nil for a member that does
// not belong to the protocol.
func (at place) inside(m *member) place {
	switch {
	case at == named || at == asked:
		return protocol
	case at == fields:
		return form
	case m == nil:
		return foreign
	case at == form && m.inside == named:
		return fields
	case at == form && m.inside == protocol:
		return form
	}
	return m.inside
}

// returned reports whether the client returns the names of members at this place.
func (at place) returned() bool { return at == asked || at == form || at == fields }

// text are members whose value is a text; an object in it is the server's own.
var text = &member{}

// members are the members of objects of MCP and of JSON Schema.
var members = func() map[string]*member {
	all := map[string]*member{
		"_meta": {inside: meta}, "inputRequests": {inside: asked}, "requestedSchema": {inside: form},
		"role":        {words: []string{"user", "assistant"}},
		"audience":    {words: []string{"user", "assistant"}},
		"resultType":  {words: []string{"complete", "input_required", "task"}},
		"cacheScope":  {words: []string{"public", "private"}},
		"method":      {words: []string{"elicitation/create", "sampling/createMessage", "roots/list"}},
		"mode":        {words: []string{"form", "url", "auto", "required", "none"}},
		"status":      {words: []string{"working", "input_required", "completed", "failed", "cancelled", "submitted"}},
		"taskSupport": {words: []string{"forbidden", "optional", "required"}},
		"theme":       {words: []string{"light", "dark"}},
		"level": {words: []string{"debug", "info", "notice", "warning", "error", "critical", "alert",
			"emergency"}},
		"$schema":      {words: schemaDialects},
		"mimeType":     {words: mediaTypes},
		"lastModified": {moment: true}, "createdAt": {moment: true}, "lastUpdatedAt": {moment: true},
		"includeContext": {words: []string{"none", "thisServer", "allServers"}},
		"type": {words: []string{"text", "image", "audio", "resource", "resource_link", "tool_use", "tool_result",
			"object", "array", "string", "number", "integer", "boolean", "null"}},
		"format": {words: []string{"date", "date-time", "time", "duration", "email", "uri", "uri-reference", "uuid",
			"hostname", "ipv4", "ipv6", "regex", "byte", "binary", "int32", "int64", "float", "double"}},
		"title": {shown: true}, "description": {shown: true}, "enumNames": {shown: true}, "$comment": {shown: true},
		"examples": {shown: true},
	}
	add := func(m *member, names ...string) {
		for _, name := range names {
			all[name] = m
		}
	}
	add(&member{inside: protocol}, "content", "contents", "messages", "resource", "annotations", "icons", "params",
		"result", "error", "task", "completion", "elicitations", "tools", "toolChoice", "modelPreferences", "hints",
		"execution", "inputSchema", "outputSchema", "items", "prefixItems", "allOf", "anyOf", "oneOf", "not", "if",
		"then", "else", "contains", "additionalProperties", "propertyNames", "unevaluatedItems",
		"unevaluatedProperties", "contentSchema")
	add(&member{inside: named}, "properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
		"dependentRequired")
	add(&member{uri: true}, "uri", "url", "src", "uriTemplate", "websiteUrl")
	add(&member{number: true}, "progress", "total", "size", "priority", "ttl", "ttlMs", "pollInterval",
		"pollIntervalMs", "code", "maxTokens", "temperature", "costPriority", "speedPriority",
		"intelligencePriority", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
		"maxContains")
	add(text, "text", "data", "blob", "name", "isError", "structuredContent", "values", "hasMore", "requestState",
		"taskId", "statusMessage", "message", "logger", "progressToken", "elicitationId", "requestId", "sizes",
		"nextCursor", "systemPrompt", "stopSequences", "metadata", "id", "toolUseId", "input", "arguments",
		"required", "enum", "const", "default", "pattern", "uniqueItems", "deprecated", "readOnly", "writeOnly",
		"contentEncoding", "contentMediaType", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor",
		"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
	return all
}()

// metaMembers are the members of _meta that MCP, its extensions and MCP Apps define.
var metaMembers = map[string]*member{
	"ui": {inside: meta}, "resourceUri": {uri: true}, "ui/resourceUri": {uri: true},
	"openai/outputTemplate": {uri: true}, "progressToken": text, "taskId": text,
	"io.modelcontextprotocol/related-task": {inside: meta}, "io.modelcontextprotocol/serverInfo": text,
	"io.modelcontextprotocol/subscriptionId": text, "io.modelcontextprotocol/protocolVersion": text,
	"io.modelcontextprotocol/clientInfo": text, "io.modelcontextprotocol/clientCapabilities": text,
	"io.modelcontextprotocol/logLevel": text,
}

// failureMembers are the members of an error of JSON-RPC.
var failureMembers = map[string]*member{"code": {number: true}, "message": text, "data": {inside: protocol}}

var schemaDialects = []string{"https://json-schema.org/draft/2020-12/schema",
	"https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-07/schema#",
	"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema#",
	"http://json-schema.org/draft-04/schema#"}

// mediaTypes are those that servers use most. Another one is a text.
var mediaTypes = []string{"text/plain", "text/plain; charset=utf-8", "text/plain;charset=utf-8", "text/html",
	"text/html;profile=mcp-app", "text/markdown", "text/csv", "text/css", "text/xml", "text/javascript",
	"text/x-python", "text/uri-list", "application/json", "application/xml", "application/yaml", "application/pdf",
	"application/zip", "application/gzip", "application/javascript", "application/octet-stream", "image/png",
	"image/jpeg", "image/gif", "image/webp", "image/svg+xml", "image/bmp", "image/tiff", "audio/wav", "audio/mpeg",
	"audio/ogg", "audio/mp4", "audio/webm", "video/mp4", "video/webm"}
