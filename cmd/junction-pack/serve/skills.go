package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/skill"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// This file has the extension for skills (SEP-2640). mcp-go does not know its methods: it checks each
// of these requests as others, and answers that there is no such method. Then the answer of this file
// takes the place of that error.

// pageSize is how many bytes of entries end a page of skills/list.
const pageSize = 256 << 10

// methods are the methods of the extension.
var methods = map[string]func(s *Server, params raw.Object) (members string, err error){
	"skills/list":              (*Server).listSkills,
	"skills/get":               (*Server).getSkill,
	"resources/directory/read": (*Server).readDirectory,
}

// ofSkills reports whether a message is a request of the extension that the pack answers, or of a file
// of a skill, for which mcp-go has another code.
func (s *Server) ofSkills(message []byte) bool {
	if !s.skills {
		return false
	}
	o, err := raw.Parse(message)
	if err != nil {
		return false
	}
	method, _ := o.String("method")
	if _, known := methods[method]; !known && method != string(mcp.MethodResourcesRead) {
		return false
	}
	if params, err := o.Object("params"); method == string(mcp.MethodResourcesRead) {
		uri, uriErr := params.String("uri")
		if err != nil || uriErr != nil || !strings.HasPrefix(uri, "skill://") {
			return false
		}
	}
	return has(o, "id")
}

// answer returns the response to a request of the extension for which mcp-go has returned instead.
func (s *Server) answer(request, instead []byte) []byte {
	response, err := raw.Parse(instead)
	if err != nil {
		return instead
	}
	var e mcp.JSONRPCErrorDetails
	if text, err := response.Get("error"); err != nil || json.Unmarshal(text, &e) != nil {
		return instead
	}
	o, _ := raw.Parse(request) // ofSkills has read it
	id, _ := o.Get("id")
	method, _ := o.String("method")
	refuse := func(message string) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, mcp.INVALID_PARAMS,
			raw.Quote(message))
	}
	if method == string(mcp.MethodResourcesRead) && e.Code == mcp.INTERNAL_ERROR {
		return refuse(e.Message) // the file does not exist, or cannot be read
	} else if e.Code != mcp.METHOD_NOT_FOUND {
		return instead
	}
	params, err := o.Object("params")
	if err != nil {
		params, _ = raw.Parse([]byte("{}"))
	}
	members, err := methods[method](s, params)
	if err != nil {
		return refuse(err.Error())
	}
	if meta, err := params.Object("_meta"); err == nil && has(meta, mcp.MetaKeyProtocolVersion) {
		members += `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, id, members)
}

func has(o raw.Object, name string) bool {
	_, err := o.Get(name)
	return err == nil
}

// listSkills answers skills/list. The cursor is the URI of the last skill of the page before.
func (s *Server) listSkills(params raw.Object) (string, error) {
	after, err := params.String("cursor")
	if err != nil && err != raw.ErrAbsent {
		return "", errors.New("cursor must be text")
	}
	var b bytes.Buffer
	last := ""
	for _, one := range s.pack.Load().Skills.List().Skills {
		if one.URI <= after {
			continue
		}
		if b.Len() > pageSize {
			return fmt.Sprintf(`"skills":[%s],"nextCursor":%s`, &b, raw.Quote(last)), nil
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.Write(one.Entry)
		last = one.URI
	}
	return fmt.Sprintf(`"skills":[%s]`, &b), nil
}

// getSkill answers skills/get.
func (s *Server) getSkill(params raw.Object) (string, error) {
	uri, err := params.String("uri")
	if err != nil {
		return "", errors.New("uri must be the URI of a SKILL.md")
	}
	one := s.pack.Load().Skills.List().Get(uri)
	if one == nil {
		return "", fmt.Errorf("no skill is served at %.200s", uri)
	}
	return fmt.Sprintf(`"skill":%s`, one.Entry), nil
}

// readDirectory answers resources/directory/read, in one page.
func (s *Server) readDirectory(params raw.Object) (string, error) {
	uri, err := params.String("uri")
	if err != nil {
		return "", errors.New("uri must be the URI of a folder")
	}
	children, ok := s.pack.Load().Skills.List().Children(uri)
	if !ok {
		return "", fmt.Errorf("%.200s is not a directory resource", uri)
	}
	list := make([]mcp.Resource, len(children))
	for i, child := range children {
		own, folder := strings.CutSuffix(child, "/")
		list[i] = mcp.Resource{URI: own, Name: path.Base(own), MIMEType: "inode/directory"}
		if !folder {
			list[i].MIMEType = manifest.TypeOf(own)
		}
	}
	text, err := json.Marshal(list)
	return fmt.Sprintf(`"resources":%s`, text), err
}

// extensions declares the extension.
func extensions() map[string]any {
	return map[string]any{definition.ExtensionSkills: map[string]any{"directoryRead": true}}
}

// skillResources returns each SKILL.md as a resource, for clients that do not know the extension.
func skillResources(f *skill.Folder) []server.ServerResource {
	var all []server.ServerResource
	for _, one := range f.List().Skills {
		all = append(all, server.ServerResource{Resource: mcp.Resource{URI: one.URI, Name: one.Name,
			Description: one.Description, MIMEType: manifest.TypeOf(one.URI)},
			Handler: func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
				return readSkill(f, one.URI)
			}})
	}
	return all
}

// skillTemplate is the template of the URIs of all files of skills.
func (s *Server) skillTemplate() {
	s.mcp.AddResourceTemplate(mcp.NewResourceTemplate("skill://{+path}", "skills",
		mcp.WithTemplateDescription("The files of the skills.")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return readSkill(s.pack.Load().Skills, r.Params.URI)
		})
}

// readSkill reads a file of a skill.
func readSkill(f *skill.Folder, uri string) ([]mcp.ResourceContents, error) {
	data, err := f.Read(uri)
	if err == skill.ErrUnknown {
		return nil, fmt.Errorf("%w: %s", server.ErrResourceNotFound, err)
	} else if err != nil {
		return nil, err
	}
	return contentsOf(uri, manifest.TypeOf(uri), data), nil
}

// answering answers the requests of the extension in a stream of messages, and passes the others on.
// The caller must close it.
func (s *Server) answering(ctx context.Context, in io.Reader, out io.Writer) io.ReadCloser {
	r, w := io.Pipe()
	go func() { // ends with the input, or at the first write after Close
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadBytes('\n')
			if s.ofSkills(line) {
				line = s.respond(ctx, line, out)
			}
			if _, closed := w.Write(line); closed != nil {
				return
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
	}()
	return r
}

// respond writes the response to a request of the extension. It returns what mcp-go has to read instead.
func (s *Server) respond(ctx context.Context, request []byte, out io.Writer) []byte {
	instead, err := json.Marshal(s.mcp.HandleMessage(ctx, request))
	if err != nil {
		return request
	}
	if _, err := out.Write(append(s.answer(request, instead), '\n')); err != nil {
		s.log.Warn("mcp", "error", err)
	}
	return nil
}

// recorder keeps a response of mcp-go.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// exchange answers a request of the extension over HTTP.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, body []byte, next http.Handler) {
	rec := &recorder{header: w.Header(), status: http.StatusOK}
	next.ServeHTTP(rec, r)
	answer := s.answer(body, rec.body.Bytes())
	if !bytes.Equal(answer, rec.body.Bytes()) {
		if o, err := raw.Parse(answer); err == nil && has(o, "error") && rec.status != http.StatusOK {
			rec.status = http.StatusBadRequest // in the modern era, as mcp-go answers others
		} else {
			rec.status = http.StatusOK
		}
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(rec.status)
	w.Write(answer) //nolint:errcheck // the client has gone
}
