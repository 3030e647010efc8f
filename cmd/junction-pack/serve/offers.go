package serve

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/upstream/files"
)

// promptsOf returns the prompts for mcp-go.
func promptsOf(p *pack.Pack) []server.ServerPrompt {
	all := make([]server.ServerPrompt, len(p.Prompts))
	for i, one := range p.Prompts {
		all[i].Prompt = mcp.Prompt{Name: one.Name, Title: one.Title, Description: one.Description}
		for _, par := range one.Parameters {
			var schema struct{ Title, Description string }
			json.Unmarshal(par.Schema, &schema) // without them, the argument has only its name
			all[i].Prompt.Arguments = append(all[i].Prompt.Arguments, mcp.PromptArgument{Name: par.Name,
				Title: schema.Title, Description: schema.Description, Required: par.Required})
		}
		all[i].Handler = func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return getPrompt(one, r.Params.Arguments)
		}
	}
	return all
}

func getPrompt(p *manifest.Prompt, arguments map[string]string) (*mcp.GetPromptResult, error) {
	values := map[string]any{}
	for name, v := range arguments {
		values[name] = v
	}
	values = p.Parameters.WithDefaults(values)
	for _, par := range p.Parameters {
		if _, given := values[par.Name]; par.Required && !given {
			return nil, fmt.Errorf("the prompt %s needs the argument %s", p.Name, par.Name)
		}
	}
	return mcp.NewGetPromptResult(p.Description, []mcp.PromptMessage{
		mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(p.Text.Text(values, nil)))}), nil
}

// resourcesOf returns the resources for mcp-go.
func resourcesOf(p *pack.Pack) []server.ServerResource {
	all := make([]server.ServerResource, len(p.Resources))
	for i, r := range p.Resources {
		all[i].Resource = mcp.Resource{URI: r.URI, Name: r.Name, Title: r.Title, Description: r.Description,
			MIMEType: r.Type}
		all[i].Handler = func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return readResource(r)
		}
	}
	return all
}

// readResource reads the file anew, which may have changed.
func readResource(r *manifest.Resource) ([]mcp.ResourceContents, error) {
	full, err := manifest.Inside(r.Dir, r.File)
	if err != nil {
		return nil, fmt.Errorf("cannot read the resource %s: %w", r.Name, err)
	}
	data, err := files.Read(full, manifest.MaxResource)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("cannot read the resource %s", r.Name)
	} else if err != nil {
		return nil, fmt.Errorf("cannot read the resource %s: it is no regular file of at most %d MiB", r.Name,
			manifest.MaxResource>>20)
	}
	return contentsOf(r.URI, r.Type, data), nil
}

// contentsOf returns the content of a file: text if possible, with the same bytes.
func contentsOf(uri, kind string, data []byte) []mcp.ResourceContents {
	if utf8.Valid(data) && (strings.HasPrefix(kind, "text/") || !strings.ContainsRune(string(data), 0)) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: kind, Text: string(data)}}
	}
	return []mcp.ResourceContents{mcp.BlobResourceContents{URI: uri, MIMEType: kind,
		Blob: base64.StdEncoding.EncodeToString(data)}}
}
