package upstream

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/upstream/client"
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
		words := append(strings.Split(field.Tag.Get("limit"), ","), "", "", "")
		if words[0] != "call" && words[0] != "server" {
			t.Errorf("the field %s has the tag limit %q: write call if (*Upstream).Call reads it, or server", field.Name, words[0])
		}
		if words[1] != "each" && words[1] != "one" {
			t.Errorf("the field %s has the tag limit with the second word %q: write each if each replica counts for itself, or one",
				field.Name, words[1])
		}
		if kind := client.Kind(words[2]); kind != noKind && !slices.Contains(client.Kinds(), kind) {
			t.Errorf("the field %s has the tag limit with the third word %q: write the kind of the error of a call that the limit "+
				"ends, one of %q, or none", field.Name, kind, client.Kinds())
		}
		if measure := yamlread.Measure(words[3]); !yamlread.MeasureFits(field.Type, measure) {
			t.Errorf("the field %s has the tag limit with the fourth word %q, which a %s does not measure: write what it counts "+
				"(yamlread.Measure)", field.Name, measure, field.Type)
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

// explain returns what junction why shows of the limits of a tool.
func explain(c Config, d Defaults) string {
	text := c.ExplainLimits("x", "tool", d)
	for _, b := range c.BoundsOf("x", "tool", d) {
		text += ", " + b.String()
	}
	return text
}

// TestLimitsAreExplained: what junction why shows of a tool names each limit, and each place of the file that can set
// it. The rules of tools do not count for other items.
func TestLimitsAreExplained(t *testing.T) {
	const most = 7 // smaller than each default
	rules := Config{Tools: Rules{{Glob: "*", Rule: Rule{Timeout: 3 * time.Second}}}}
	if text := rules.ExplainLimits("x", "", Defaults{}); strings.Contains(text, "tools") {
		t.Errorf("a prompt is explained by the rule of a tool: %s", text)
	}
	rows := Limits()
	for _, row := range rows {
		key, field := row.Key, reflect.TypeFor[Config]().FieldByIndex(row.field)
		if key == "cache" { // proxy/view explains its effect on a tool
			continue
		}
		var rule Rule
		var c, ruled Config
		var d Defaults
		put(reflect.ValueOf(&c).Elem().FieldByName(field.Name), most)
		wants := map[string]string{"upstreams.x." + key: explain(c, d)}
		if v := reflect.ValueOf(&rule).Elem().FieldByName(field.Name); v.IsValid() {
			put(v, most)
			ruled.Tools = Rules{{Glob: "tool", Rule: rule}}
			wants["upstreams.x.tools.tool."+key] = explain(ruled, d)
		}
		if v := reflect.ValueOf(&d).Elem().FieldByName(field.Name); v.IsValid() {
			put(v, most)
			wants["defaults."+key] = explain(Config{}, d)
		}
		for want, text := range wants {
			if !strings.Contains(text, "("+want+")") {
				t.Errorf("with %s, a tool is explained by %q", want, text)
			}
		}
	}
	if len(rows) < 7 {
		t.Errorf("an entry has %d limits: the test reads something else", len(rows))
	}
}

// TestEachLimitHasAKindOfError: the table of the kinds of errors names each limit in the row of the kind with which the
// limit ends calls, and in no other row.
func TestEachLimitHasAKindOfError(t *testing.T) {
	readme, err := os.ReadFile("../proxy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n| kind | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range Limits() {
		var named []string
		for _, line := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*`"+row.Key+"`").FindAllStringSubmatch(table, -1) {
			named = append(named, line[1])
		}
		var want []string
		if row.Ends != "" {
			want = []string{string(row.Ends)}
		}
		if !slices.Equal(named, want) {
			t.Errorf("the table of the kinds of errors in proxy/README.md names `%s` in the rows %q; the tag limit of its field "+
				"says %q", row.Key, named, want)
		}
	}
	for _, row := range Limits() {
		if row.OfCall && row.Measure == yamlread.MeasureBytes && row.Ends.Unmade() {
			t.Errorf("`%s` limits the bytes of a call; after its answer, the call was made, and the kind `%s` says that it was "+
				"not: make a kind whose outcome is Doubtful", row.Key, row.Ends)
		}
	}
	for _, kind := range client.Kinds() {
		line := regexp.MustCompile("(?m)^\\| `" + string(kind) + "` \\|.*$").FindString(table)
		if line == "" || strings.Contains(line, "The call was not made.") != kind.Unmade() {
			t.Errorf("the table of the kinds of errors in proxy/README.md has %q of `%s`, which says that the call was not made: %v",
				line, kind, kind.Unmade())
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
	for _, row := range Limits() {
		listed := regexp.MustCompile("(?m)^\\| [^|]*`" + row.Key + "`").MatchString(table)
		if listed != row.Each {
			t.Errorf("the table in replicas/README.md has `%s`: %v; the tag limit of its field says each: %v", row.Key, listed, row.Each)
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
	for _, row := range Limits() {
		if row.Ends != "" && !regexp.MustCompile(`[ "]\(`+row.Key+`[:)]`).MatchString(code.String()) {
			t.Errorf("no error of a call says (%s)", row.Key)
		}
	}
}
