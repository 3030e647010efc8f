// Package openapi makes tools of the operations of an OpenAPI document (3.0 and later).
//
// load.go reads the document and what it refers to, within limits, and fetch.go fetches them.
// nesting.go and references.go refuse what would take the library too long. operation.go chooses
// operations and makes their tools, server.go their servers, schema.go and body.go the schemas of
// their arguments, and request.go and auth.go their requests and credentials.
package openapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
	"junction/upstream/files"
)

// Limits of a document and all documents that it refers to.
const (
	maxDocument  = 16 << 20
	maxDocuments = 64
	maxTotal     = 32 << 20
	fetchTime    = 30 * time.Second
)

// reader reads documents and counts them.
type reader struct {
	fetch func(ctx context.Context, url string) ([]byte, error)
	files []string // local ones that were read
	root  string   // the folder that local references must be in
	first *url.URL // the document itself
	count int
	left  int64
	graph graph
}

// read returns a document that is the first one, or that another one refers to. Local documents
// must be in the folder of the manifest, and a fetched one may refer only to its own origin.
func (r *reader) read(l *openapi3.Loader, at *url.URL) ([]byte, error) {
	if r.count++; r.count > maxDocuments {
		return nil, fmt.Errorf("it refers to more than %d documents", maxDocuments)
	}
	text, err := r.open(l.Context, at)
	if err != nil {
		return nil, err
	}
	if r.left -= int64(len(text)); r.left < 0 {
		return nil, fmt.Errorf("it and the documents that it refers to have more than %d MiB", maxTotal>>20)
	}
	if r.count == 1 && swagger.Match(text) {
		return nil, errors.New("it is Swagger 2.0; convert it to OpenAPI 3, for example with swagger2openapi")
	}
	if err := nesting(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(at.Path), err)
	}
	if err := r.graph.add(at.String(), text); err != nil {
		return nil, err
	}
	return text, nil
}

var swagger = regexp.MustCompile(`(?m)(^|[{,])\s*"?swagger"?\s*:\s*["']?2\.`)

func (r *reader) open(ctx context.Context, at *url.URL) ([]byte, error) {
	if at.Scheme == "http" || at.Scheme == "https" {
		if r.first.Scheme != at.Scheme || r.first.Host != at.Host {
			return nil, fmt.Errorf("it refers to another host, %s; keep a copy beside it", at.Host)
		}
		return r.fetch(ctx, at.String())
	}
	if at.Scheme != "" && at.Scheme != "file" || r.first.Scheme == "http" || r.first.Scheme == "https" {
		return nil, fmt.Errorf("it refers to %q, which is neither a file beside it nor a URL", at.Redacted())
	}
	name := filepath.FromSlash(at.Path)
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: no such file", name)
	}
	if _, inside := manifest.Below(r.root, real); !inside && r.count > 1 {
		return nil, fmt.Errorf("it refers to %s, outside the folder of the manifest; copy the file into it", name)
	} else if !inside {
		return nil, errors.New("it is outside the folder of the manifest; copy the file into it")
	}
	text, err := files.Read(real, maxDocument)
	if e, large := errors.AsType[*files.TooLargeError](err); large {
		return nil, fmt.Errorf("%s has %d MiB, more than %d", name, e.Size>>20, maxDocument>>20)
	} else if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	r.files = append(r.files, name)
	return text, nil
}

// document reads the document of an API, with everything that it refers to. reach is the addresses
// that its requests may reach.
func document(ctx context.Context, a *manifest.API) (doc *openapi3.T, reach web.Reach, files []string, err error) {
	at := &url.URL{Path: filepath.ToSlash(a.Spec.Value())}
	if manifest.IsURL(a.Spec.Value()) {
		if at, err = url.Parse(a.Spec.Value()); err != nil {
			return nil, reach, nil, errors.New("its URL cannot be parsed")
		}
	} else if !filepath.IsAbs(a.Spec.Value()) {
		at.Path = filepath.ToSlash(filepath.Join(a.Dir, a.Spec.Value()))
	}
	root, err := filepath.EvalSymlinks(a.Dir)
	if err != nil {
		return nil, reach, nil, err
	}
	f := newFetcher()
	defer f.close()
	r := &reader{fetch: f.get, root: root, first: at, left: maxTotal}
	defer func() { files = r.files }()
	defer survive(&err)
	l := &openapi3.Loader{Context: ctx, IsExternalRefsAllowed: true, ReadFromURIFunc: r.read}
	if doc, err = l.LoadFromURI(at); err != nil {
		return nil, reach, nil, unreadable(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") {
		return nil, reach, nil, fmt.Errorf("it is no OpenAPI 3 document (openapi is %q); name one", doc.OpenAPI)
	}
	doc.InternalizeRefs(ctx, names(at.Path).name)
	if reach = (web.Reach{Any: true}); at.Host != "" && a.BaseURL.Source == "" {
		reach = f.reach(at)
	}
	return doc, reach, nil, nil
}

// another is what the library says about a value of another type than OpenAPI has there.
var another = regexp.MustCompile(`json: cannot unmarshal (\w+) into .*type openapi3\.(\w+)$`)

// unreadable returns the error of the library in plain words. The library tries to read a document
// as JSON, and then as YAML. A text that is no JSON has its reason in the second error.
func unreadable(err error) error {
	text, tried := strings.CutPrefix(err.Error(), "failed to unmarshal data: json error: ")
	asJSON, asYAML, both := strings.Cut(text, ", yaml error: ")
	if !tried || !both {
		return err
	}
	if text = asJSON; strings.HasPrefix(asJSON, "invalid character") {
		text = strings.TrimPrefix(asYAML, "error converting YAML to JSON: ")
	}
	switch found := another.FindStringSubmatch(text); {
	case found == nil:
		return errors.New(text)
	case found[2] == "T":
		return fmt.Errorf("it is no OpenAPI document, but a %s", found[1])
	default:
		return fmt.Errorf("it has a %s in place of an object of OpenAPI (%s)", found[1], found[2])
	}
}

// survive turns a panic of the library into an error, so that it does not end the program.
func survive(err *error) {
	if recover() != nil {
		*err = errors.New("it cannot be read as OpenAPI 3; look for a reference that only leads back to itself")
	}
}

// names is the path of a document. It gives names to the parts that the document refers to. The
// library's own function for that does not end if a document refers to itself.
type names string

func (n names) name(doc *openapi3.T, ref openapi3.ComponentRef) string {
	file, pointer := ref.RefPath().Path, ref.RefPath().Fragment
	if component, found := openapi3.ReferencesComponentInRootDocument(doc, ref); found {
		file, pointer = string(n), component
	}
	collection := "/components/" + ref.CollectionName() + "/"
	pointer = strings.Trim(strings.Replace(strings.TrimPrefix(pointer, "#"), collection, "/", 1), "/")
	if file == string(n) {
		file = ""
	}
	file = strings.TrimPrefix(file, path.Dir(string(n)))
	name := strings.Trim(strings.TrimSuffix(file, path.Ext(file))+"/"+pointer, "/.")
	return openapi3.InvalidIdentifierCharRegExp.ReplaceAllString(name, "_")
}
