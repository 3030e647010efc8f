package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/stored"
	"junction/cmd/junction/ops/pages"
	"junction/upstream"
	"junction/upstream/files"
)

// watched is a part that notes what is done with it. fails is the method that returns errOfTest. With late, it
// does so after the method of the part.
type watched struct {
	part
	fails string
	late  bool
	calls *[]string
}

var errOfTest = errors.New("the part fails, as the test wants it")

func (w watched) note(method string) error {
	*w.calls = append(*w.calls, fmt.Sprintf("%s %s", method, nameOf(w.part)))
	if w.fails == method && !w.late {
		return errOfTest
	}
	return nil
}

func (w watched) Open(c *config.Config) error {
	if err := w.note("Open"); err != nil {
		return err
	}
	err := w.part.Open(c)
	if w.fails == "Open" && err == nil {
		return errOfTest
	}
	return err
}

func (w watched) Prepare(next *config.Config) (prepared, error) {
	if err := w.note("Prepare"); err != nil {
		return prepared{}, err
	}
	return w.part.Prepare(next)
}

func (w watched) Close() {
	_ = w.note("Close")
	w.part.Close()
}

// Run keeps the loop of the part.
func (w watched) Run(ctx context.Context) error {
	if r, ok := w.part.(runner); ok {
		return r.Run(ctx)
	}
	return nil
}

// nameOf returns the name of the type of a part.
func nameOf(p part) string {
	if w, ok := p.(watched); ok {
		p = w.part
	}
	return strings.TrimPrefix(strings.TrimPrefix(reflect.TypeOf(p).String(), "*"), "serve.")
}

// mustFile writes a configuration file, and returns the options of its program. The text may have %[1]s for the
// folder of the file. A database and its keys are in it, if an upstream needs them.
func mustFile(t *testing.T, text string) options {
	t.Helper()
	dir := t.TempDir()
	o := options{file: filepath.Join(dir, "config.yaml"), stdout: io.Discard,
		stderr: authtest.Searched(t, "what the program writes"),
		getenv: environment(map[string]string{"XDG_STATE_HOME": dir})}
	o.mustWrite(t, text)
	return o
}

// mustWrite replaces the text of the file.
func (o options) mustWrite(t *testing.T, text string) {
	t.Helper()
	text = addresses + "storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n" + text
	mustWrite(t, o.file, strings.ReplaceAll(text, "%[1]s", filepath.Dir(o.file)))
}

const (
	// signsIn has an upstream that needs a database, and an audit.
	signsIn = "audit: { file: %[1]s/audit }\nupstreams: { a: { url: \"http://127.0.0.1:1/mcp\", auth: { mode: oauth } } }\n"
	// resting has no upstream that runs, so that nothing happens by itself.
	resting = "upstreams: { a: { url: \"http://127.0.0.1:1/mcp\", enabled: false } }\n"
)

// TestPartsCloseInReverseAndOnce starts a program whose n-th part cannot be opened, for each part, and then
// one that starts. Each part that was asked to open is closed once, the last one first. Otherwise the next
// program would find the database or the audit in use.
func TestPartsCloseInReverseAndOnce(t *testing.T) {
	o := mustFile(t, signsIn)
	last := len(newProgram(o).parts.list)
	for n := range 2*last + 1 {
		n, late := n/2, n%2 == 1
		p := newProgram(o)
		var calls, want []string
		for i, one := range p.parts.list {
			w := watched{part: one, calls: &calls}
			if i == n {
				w.fails, w.late = "Open", late
			}
			if p.parts.list[i] = w; i <= n {
				want = append(want, "Open "+nameOf(one))
			}
		}
		err := p.open()
		if n < last && !errors.Is(err, errOfTest) || n == last && err != nil {
			t.Fatalf("with a failure at %d: %v", n, err)
		}
		p.close()
		p.close()
		for _, opened := range slices.Backward(slices.Clone(want)) {
			want = append(want, strings.Replace(opened, "Open", "Close", 1))
		}
		calls = slices.DeleteFunc(calls, func(call string) bool { return strings.HasPrefix(call, "Prepare") })
		if !slices.Equal(calls, want) {
			t.Errorf("with a failure at %d:\n%q\nwant\n%q", n, calls, want)
		}
	}
}

// TestOrderOfTheParts: a process that waits for this one finds its record until the database and the audit are
// free, and it finds the database in use until the upstreams have ended. A process whose address is taken does
// not lock the audit and the database. Nothing is in force before its audit and its database.
func TestOrderOfTheParts(t *testing.T) {
	var names []string
	for _, p := range slices.Backward(newProgram(options{}).parts.list) {
		names = append(names, nameOf(p))
	}
	order := []string{"upstreams", "inForce", "signIns", "storage", "recording", "listening", "terminal", "place"}
	if got := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(order, name) }); !slices.Equal(got, order) {
		t.Errorf("the parts are closed in the order %q, want %q in this order", names, order)
	}
	if names[len(names)-1] != "place" {
		t.Errorf("%s is closed after the place", names[len(names)-1])
	}
}

// TestPrepareThatFailsLeavesEachPart: a changed file needs a database, another audit, other upstreams and
// policies. If any part cannot prepare it, each part is as it was, and what was opened is released: otherwise
// the next try would find the audit and the database in use.
func TestPrepareThatFailsLeavesEachPart(t *testing.T) {
	o := mustFile(t, resting)
	p, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	o.mustWrite(t, signsIn+"endpoints: { few: { upstreams: [a] } }\npolicies: [{ name: all, rules: [{ allow: { upstreams: a } }] }]\n"+
		"auth: { api_keys: [{ name: ci, hash: \"sha256:"+strings.Repeat("0a", 32)+"\" }] }\n")
	next, _, err := config.LoadServing(o.file, o.getenv, true)
	if err != nil {
		t.Fatal(err)
	}
	change := p.inForce.config.Follow(next)
	if change.Refused != nil || len(change.Restart) > 0 {
		t.Fatal(change.Refused, change.Restart)
	}
	next = change.Config
	list := p.parts.list
	before := shapes(list, p)
	failing := func(n int, one part) {
		var calls []string
		p.parts.list = slices.Clone(list)
		if n == len(list) {
			p.parts.list = append(p.parts.list, nil)
		}
		p.parts.list[n] = watched{part: one, calls: &calls, fails: "Prepare"}
		commit, err := p.parts.Prepare(next)
		p.parts.list = list
		if !errors.Is(err, errOfTest) || commit != nil {
			t.Fatalf("with a failure of %s: %v", nameOf(one), err)
		}
		for i, now := range shapes(list, p) {
			if now != before[i] {
				t.Errorf("%s cannot prepare the file, and %s has changed:\n%s\nit was\n%s", nameOf(one), nameOf(list[i]), now, before[i])
			}
		}
	}
	for n, one := range list {
		failing(n, one)
	}
	failing(len(list), &sealing{}) // a part that comes last
	audit, err := os.Open(filepath.Join(filepath.Dir(o.file), "audit"))
	if err != nil {
		t.Fatal(err)
	}
	if err := files.TryLock(audit); err != nil {
		t.Errorf("the audit of a file that is not in force is locked: %v", err)
	}
	audit.Close()
	commit, err := p.parts.Prepare(next)
	if err != nil {
		t.Fatalf("after the failures: %v", err)
	}
	commit()
	after, changed := shapes(list, p), []string{}
	for i := range list {
		if after[i] != before[i] {
			changed = append(changed, nameOf(list[i]))
		}
	}
	for _, name := range []string{"inForce", "recording", "storage", "signIns", "serving", "upstreams"} {
		if !slices.Contains(changed, name) {
			t.Errorf("the file is in force, and %s is as before: the test sees no change of it", name)
		}
	}
}

// TestReloadThatFailsOpensNothing: the audit of a changed file cannot be written. Its upstream, which needs a
// database, waits with it, so that no database is opened.
func TestReloadThatFailsOpensNothing(t *testing.T) {
	o := mustFile(t, resting)
	p, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	database := filepath.Join(filepath.Dir(o.file), "junction.db")
	o.mustWrite(t, strings.Replace(signsIn, "/audit }", " }", 1)) // a folder
	p.reload(true)
	if _, err := os.Stat(database); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the reload is refused, and has opened a database (%v)", err)
	}
	o.mustWrite(t, signsIn)
	p.reload(true)
	if _, err := os.Stat(database); err != nil {
		t.Errorf("after a reload that is not refused: %v", err)
	}
}

// shapes returns what each part has: its values, and where its pointers point to.
func shapes(list []part, p *program) (texts []string) {
	others := map[uintptr]bool{reflect.ValueOf(p.common).Pointer(): true}
	for _, one := range list {
		if v := reflect.ValueOf(one); v.Kind() == reflect.Pointer {
			others[v.Pointer()] = true
		}
	}
	for _, one := range list {
		v := reflect.ValueOf(one)
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		texts = append(texts, shape(v, p, others, 2))
	}
	return texts
}

// shape follows pointers to types of Junction, except to other parts, up to a depth.
func shape(v reflect.Value, p *program, others map[uintptr]bool, depth int) string {
	within := func(v reflect.Value) string { return shape(v, p, others, depth) }
	switch v.Kind() {
	case reflect.Struct:
		switch v.Type() {
		// Goroutines change these.
		case reflect.TypeFor[sync.Mutex](), reflect.TypeFor[sync.WaitGroup](), reflect.TypeFor[stored.Dir](),
			reflect.TypeFor[record.Outages](), reflect.TypeFor[pages.History]():
			return "_"
		case reflect.TypeFor[upstream.Set](): // its goroutines change it
			var b strings.Builder
			for _, u := range p.upstreams.set.All() {
				fmt.Fprintf(&b, "%p ", u)
			}
			return b.String()
		}
		var b strings.Builder
		for i := range v.NumField() {
			fmt.Fprintf(&b, "%s:%s ", v.Type().Field(i).Name, within(v.Field(i)))
		}
		return "{" + b.String() + "}"
	case reflect.Pointer:
		text := fmt.Sprintf("%#x", v.Pointer())
		if depth > 0 && !v.IsNil() && !others[v.Pointer()] && strings.HasPrefix(v.Type().Elem().PkgPath(), "junction/") {
			text += shape(v.Elem(), p, others, depth-1)
		}
		return text
	case reflect.UnsafePointer, reflect.Map, reflect.Chan, reflect.Func:
		return fmt.Sprintf("%#x", v.Pointer())
	case reflect.Slice:
		return fmt.Sprintf("%#x+%d", v.Pointer(), v.Len())
	case reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return within(v.Elem())
	case reflect.Array:
		var b strings.Builder
		for i := range v.Len() {
			b.WriteString(within(v.Index(i)) + " ")
		}
		return b.String()
	}
	return fmt.Sprint(v)
}
