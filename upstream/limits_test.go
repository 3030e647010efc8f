package upstream

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/upstream/yamlread"
)

// numbers returns the keys of a type whose values are numbers, with their fields.
func numbers(t reflect.Type) map[string]reflect.StructField {
	found := map[string]reflect.StructField{}
	for key, index := range yamlread.Keys(t) {
		field := t.FieldByIndex(index)
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if kind.Kind() >= reflect.Int && kind.Kind() <= reflect.Float64 {
			found[key] = field
		}
	}
	return found
}

// put sets a number to n.
func put(v reflect.Value, n int64) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	v.Set(reflect.ValueOf(n).Convert(v.Type()))
}

// TestEachLimitIsDocumented: each number of an entry has the tag limit, is a key in the README, and has a line in
// CHANGELOG.md.
func TestEachLimitIsDocumented(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	changes, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for key, field := range numbers(reflect.TypeFor[Config]()) {
		if !regexp.MustCompile("`" + key + "\\b").Match(changes) {
			t.Errorf("CHANGELOG.md has no line about `%s`", key)
		}
		what, counts, _ := strings.Cut(field.Tag.Get("limit"), ",")
		if what != "call" && what != "server" {
			t.Errorf("the field %s has the tag limit %q: write call if junction why shows it with a tool, or server", field.Name, what)
		}
		if counts != "each" && counts != "one" {
			t.Errorf("the field %s has the tag limit with the second word %q: write each if each replica counts for itself, or one",
				field.Name, counts)
		}
		if !strings.Contains(string(readme), "`"+key+"`") {
			t.Errorf("upstream/README.md does not say what `%s` bounds", key)
		}
	}
}

// TestLimitsWithoutADefaultInTheFile: the section of the README about limits names the keys in its list that
// defaults does not have.
func TestLimitsWithoutADefaultInTheFile(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Time limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	defaults := yamlread.Keys(reflect.TypeFor[Defaults]())
	var without []string
	for _, item := range regexp.MustCompile("(?m)^- `(\\w+)`").FindAllStringSubmatch(section, -1) {
		if defaults[item[1]] == nil {
			without = append(without, "`"+item[1]+"`")
		}
	}
	if want := "`defaults` sets these keys, except " + strings.Join(without, " and ") + ","; !strings.Contains(section, want) {
		t.Errorf("the section does not say %q", want)
	}
}

// TestLimitsOfACallAreExplained: what junction why shows of a tool names each limit of a call, and each
// place of the file that can set it.
func TestLimitsOfACallAreExplained(t *testing.T) {
	const most = 7 // smaller than each default
	calls := 0
	for _, key := range slices.Sorted(maps.Keys(numbers(reflect.TypeFor[Config]()))) {
		field := numbers(reflect.TypeFor[Config]())[key]
		if what, _, _ := strings.Cut(field.Tag.Get("limit"), ","); what != "call" {
			continue
		}
		calls++
		if field.Type != reflect.TypeFor[time.Duration]() {
			t.Errorf("%s is no time: have junction why label the limits of a call otherwise (field Limits in why_command.go), "+
				"and remove this condition", key)
		}
		var rule Rule
		var c, ruled Config
		var d Defaults
		put(reflect.ValueOf(&c).Elem().FieldByName(field.Name), most)
		wants := map[string]string{"upstreams.x." + key: c.ExplainLimits("x", "tool", d)}
		if v := reflect.ValueOf(&rule).Elem().FieldByName(field.Name); v.IsValid() {
			put(v, most)
			ruled.Tools = Rules{{Glob: "tool", Rule: rule}}
			wants["upstreams.x.tools.tool."+key] = ruled.ExplainLimits("x", "tool", d)
		}
		if v := reflect.ValueOf(&d).Elem().FieldByName(field.Name); v.IsValid() {
			put(v, most)
			wants["defaults."+key] = Config{}.ExplainLimits("x", "tool", d)
		}
		for want, text := range wants {
			if !strings.Contains(text, "("+want+")") {
				t.Errorf("with %s, a tool is explained by %q", want, text)
			}
		}
	}
	if calls == 0 {
		t.Error("no field of an entry is a limit of a call")
	}
}

// noErrors are the limits of which no error of a call tells, and why.
var noErrors = map[string]string{"idle_stop": "ends no call", "cache": "bounds no call"}

// TestEachLimitHasAKindOfError: the table of the kinds of errors names each limit in the row of its kind, and so does
// the runbook for calls that fail.
func TestEachLimitHasAKindOfError(t *testing.T) {
	readme, err := os.ReadFile("../proxy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n| kind | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	runbook, err := os.ReadFile("../cmd/junction/deploy/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	_, failed, _ := strings.Cut(string(runbook), "\n## JunctionCallsFail\n")
	failed, _, _ = strings.Cut(failed, "\n## ")
	for key := range numbers(reflect.TypeFor[Config]()) {
		if noErrors[key] == "" && !strings.Contains(failed, "`"+key+"`") {
			t.Errorf("JunctionCallsFail in RUNBOOK.md does not name `%s`, whose error makes calls fail", key)
		}
		named := regexp.MustCompile("(?m)^\\| `\\w+` \\|.*`" + key + "`").MatchString(table)
		if named == (noErrors[key] != "") {
			t.Errorf("the table of the kinds of errors in proxy/README.md names `%s`: %v; name the limit in the row of the "+
				"kind that its error has, or say in noErrors why it has none", key, named)
		}
	}
}

// TestReplicasCountTheirLimits: the table of what counts for each process alone has the limits with the second word
// each in the tag, and no other one.
func TestReplicasCountTheirLimits(t *testing.T) {
	readme, err := os.ReadFile("../cmd/junction/base/replicas/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n| setting | what three processes have together |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for key, field := range numbers(reflect.TypeFor[Config]()) {
		_, counts, _ := strings.Cut(field.Tag.Get("limit"), ",")
		listed := regexp.MustCompile("(?m)^\\| [^|]*`" + key + "`").MatchString(table)
		if listed != (counts == "each") {
			t.Errorf("the table in replicas/README.md has `%s`: %v; the tag limit of its field says %q", key, listed, counts)
		}
	}
}

// TestRulesReplaceLimits: the README lists the limits that a rule for tools replaces, which are the numbers of a rule.
func TestRulesReplaceLimits(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key := range numbers(reflect.TypeFor[Rule]()) {
		keys = append(keys, "`"+key+"`")
	}
	slices.Sort(keys)
	last := len(keys) - 1
	want := "- " + strings.Join(keys[:last], ", ") + " and " + keys[last] + " replace the limits of the upstream"
	if !strings.Contains(strings.Join(strings.Fields(string(readme)), " "), want) {
		t.Errorf("upstream/README.md does not say %q", want)
	}
}

// TestWhyShowsTheLimitsOfACall: the README names the limits that junction why shows, which are those of a call.
func TestWhyShowsTheLimitsOfACall(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key, field := range numbers(reflect.TypeFor[Config]()) {
		if what, _, _ := strings.Cut(field.Tag.Get("limit"), ","); what == "call" {
			keys = append(keys, "`"+key+"`")
		}
	}
	slices.Sort(keys)
	last := len(keys) - 1
	want := "`junction why` shows " + strings.Join(keys[:last], ", ") + " and " + keys[last] + " of a tool"
	if !strings.Contains(strings.Join(strings.Fields(string(readme)), " "), want) {
		t.Errorf("upstream/README.md does not say %q", want)
	}
}

// TestErrorsNameTheLimit: an error, or the text about one, names the key of each limit.
func TestErrorsNameTheLimit(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"*.go", "*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, "_test.go") {
				code.Write(regexp.MustCompile(`(?m)//.*$`).ReplaceAll(text, nil))
			}
		}
	}
	for key := range numbers(reflect.TypeFor[Config]()) {
		if noErrors[key] == "" && !regexp.MustCompile(`[ "]\(`+key+`[:)]`).MatchString(code.String()) {
			t.Errorf("no error of a call says (%s)", key)
		}
	}
}
