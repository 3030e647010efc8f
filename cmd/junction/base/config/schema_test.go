package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// TestSchemaIsThatOfTheTypes: a key that is new, renamed or described anew changes the schema.
func TestSchemaIsThatOfTheTypes(t *testing.T) {
	made := mustMakeSchema(t)
	if *update {
		mustWrite(t, "schema.json", string(made))
		return
	}
	have, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, have) {
		t.Error("schema.json is not that of the types; run go generate ./cmd/junction/base/config")
	}
}

// compiled is the validator of the schema.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
})

// violations returns what an editor would underline in a file; nil if it fits. ok is false if the text is
// not a YAML document with a value.
func violations(t testing.TB, text []byte) (wrong error, ok bool) {
	t.Helper()
	s, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil || value == nil {
		return nil, false
	}
	encoded, err := json.Marshal(asJSON(value))
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(document), true
}

// asJSON replaces the values of YAML that JSON does not have. Editors take a date for text.
func asJSON(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = asJSON(v[key])
		}
	case map[any]any:
		m := map[string]any{}
		for key, e := range v {
			text, _ := yaml.Marshal(key)
			m[strings.TrimSpace(string(text))] = asJSON(e)
		}
		return m
	case []any:
		for i := range v {
			v[i] = asJSON(v[i])
		}
	case time.Time:
		return v.Format(time.DateOnly)
	}
	return value
}

// everything is a getenv in which each variable is set. The values fit where the files have references.
func everything(name string) (string, bool) { return "7", true }

// mustCollect returns texts that may be configuration files: the example with and without its comments, those
// in documents and in stories.
func mustCollect(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	block := regexp.MustCompile("(?s)\n```yaml\n(.*?)```")
	section := regexp.MustCompile(`(?ms)^-- (\S+\.yaml) --\n(.*?)(?:^-- |\z)`)
	err := filepath.WalkDir("../../../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"node_modules", ".git"}, entry.Name()) {
			return fs.SkipDir
		}
		if entry.IsDir() || !slices.Contains([]string{".md", ".yaml", ".txt", ".txtar"}, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		switch filepath.Ext(name) {
		case ".yaml":
			all[name] = text
		case ".md":
			for _, m := range block.FindAllSubmatchIndex(text, -1) {
				all[fmt.Sprintf("%s:%d", name, 1+bytes.Count(text[:m[2]], []byte("\n")))] = text[m[2]:m[3]]
			}
		default:
			for rest := text; ; {
				m := section.FindSubmatchIndex(rest)
				if m == nil {
					break
				}
				all[name+":"+string(rest[m[2]:m[3]])] = rest[m[4]:m[5]]
				rest = rest[m[5]:]
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSchemaAgreesWithTheReader: the schema accepts every file that the reader accepts, and rejects every
// file with an unknown key.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	accepted, rejected := 0, 0
	for name, text := range mustCollect(t) {
		_, d := parse(name, text, everything, nil)
		wrong, ok := violations(t, text)
		switch unknown := slices.ContainsFunc(d.Problems, func(p Problem) bool { return strings.HasPrefix(p.Text, "unknown key") }); {
		case !ok:
		case unknown && wrong == nil:
			t.Errorf("the schema accepts %s, where the reader finds\n%v", name, d.Problems)
		case unknown:
			rejected++
		case len(d.Problems) == 0 && wrong != nil:
			t.Errorf("the schema rejects %s, which is valid: %v\n%s", name, wrong, text)
		case len(d.Problems) == 0:
			accepted++
		}
	}
	if accepted < 100 || rejected < 20 {
		t.Errorf("%d valid files and %d with unknown keys were compared; the files were not found", accepted, rejected)
	}
	t.Logf("%d valid, %d with unknown keys", accepted, rejected)
}

// TestSchemaAcceptsEveryKey: the example with all its keys fits.
func TestSchemaAcceptsEveryKey(t *testing.T) {
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^( *)#([^ #\n])`).ReplaceAll(text, []byte("$1$2"))
	if wrong, ok := violations(t, all); !ok || wrong != nil {
		t.Errorf("the example with all keys: %v", wrong)
	}
}

// TestSchemaDescribesEveryKey: an editor has a text for each key, and for each word a row of the reader.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var document struct {
		Definitions map[string]struct {
			Properties map[string]struct{ Description string }
			AnyOf      []struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := json.Unmarshal([]byte(Schema()), &document); err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`\.go\b|\bpackage [a-z]|\bLoad\b|\bnil\b|\b(` + strings.Join(codeNames(), "|") + `)\b`)
	described := 0
	for name, d := range document.Definitions {
		forms := []map[string]struct{ Description string }{d.Properties}
		for _, f := range d.AnyOf {
			forms = append(forms, f.Properties)
		}
		for _, properties := range forms {
			for key, p := range properties {
				described++
				if p.Description == "" || code.MatchString(p.Description) {
					t.Errorf("%s.%s has no description for operators: %q", name, key, p.Description)
				}
			}
		}
	}
	if described < 150 {
		t.Errorf("%d keys have a description", described)
	}
}

// codeNames returns the names of fields that are no words of operators: those in CamelCase.
func codeNames() (names []string) {
	seen, camel := map[reflect.Type]bool{}, regexp.MustCompile(`[a-z][A-Z]`)
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(of.Elem())
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(of) {
				if camel.MatchString(f.Name) && f.IsExported() {
					names = append(names, f.Name)
				}
				if !seen[f.Type] {
					seen[f.Type] = true
					walk(f.Type)
				}
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	return names
}

// TestSchemaHasTheWordsOfTheReader: the reader accepts each word that an editor offers.
func TestSchemaHasTheWordsOfTheReader(t *testing.T) {
	seen, found := map[reflect.Type]bool{}, 0
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		if w, ok := reflect.Zero(of).Interface().(words); ok && of.Kind() == reflect.String {
			found++
			for _, word := range w.Words() {
				if err := set(reflect.New(of).Elem(), word); err != nil {
					t.Errorf("%v: %q: %v", of, word, err)
				}
			}
			if err := set(reflect.New(of).Elem(), "canary"); err == nil {
				t.Errorf("%v accepts every word", of)
			}
		}
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(of.Elem())
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(of) {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	if found < 10 {
		t.Errorf("found %d types of words", found)
	}
}
