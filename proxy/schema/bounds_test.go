package schema

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestLongNamesInProblems has a thousand alternatives, whose every problem names a member of 80
// kilobytes. The problems are shortened without a copy of the name, and without reading all of it.
func TestLongNamesInProblems(t *testing.T) {
	var inner []string
	for i := range maxForms {
		inner = append(inner, fmt.Sprintf(`{"additionalProperties":{"enum":[%d]}}`, i+5))
	}
	form := `{"anyOf":[` + strings.Join(inner, ",") + `]}`
	s, err := compile(definitionOf(`{"anyOf":[` + strings.Repeat(form+",", maxForms-1) + form + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	args, err := parse([]byte(`{"` + strings.Repeat(`a\u0062`, 10_000) + `":1}`))
	if err != nil {
		t.Fatal(err)
	}
	c, found := &check{ctx: t.Context(), args: args, most: maxSteps}, &problems{}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fits := c.fits(s, 0, found, nil)
	runtime.ReadMemStats(&after)
	if fits || c.err != nil || len(found.list) != 1 || len(found.list[0].text) > 1000 {
		t.Errorf("the check finds %.100q, %v; want one short problem", found.list, c.err)
	}
	const names = 80_000 * maxForms * maxForms
	if n := after.TotalAlloc - before.TotalAlloc; n > names/10 || c.steps > names/160 {
		t.Errorf("the check allocates %d bytes and takes %d steps; the names have %d bytes", n, c.steps, names)
	}
}

// TestCompiledSchemasAreBounded keeps schemas whose compiled form has 300 times their size.
func TestCompiledSchemasAreBounded(t *testing.T) {
	var v Validator
	empties := `{"allOf":[` + strings.Repeat("{},", 4000) + `{}]}`
	for i := range 300 {
		v.schema([]byte(fmt.Sprintf(`{"name":"t%d","inputSchema":%s}`, i, empties)))
	}
	if n := len(v.schemas); n*4000*800 > mostSchemaBytes {
		t.Errorf("%d schemas of 4000 subschemas are kept", n)
	}
}

// TestNamesAreCompared has names in all spellings. The order and the equality are those of the names
// without escapes.
func TestNamesAreCompared(t *testing.T) {
	written := []string{`a`, `\u0061`, `ab`, `a\u0062`, `\u0061\u00e4`, `aä`, `\n`, `\/`, `/`, `\"`, `\\`, `\ud83d\ude00`, `😀`,
		`\ud83d`, `\ud83dx`, `\ude00\ud83d`, "\xff", "a\xffb", `\ufffd`, ``, `\b\f\r\t`, `\uffff`}
	for _, x := range written {
		for _, y := range written {
			v, err := parse([]byte(`[{"` + x + `":1},{"` + y + `":1}]`))
			if err != nil {
				t.Fatal(err)
			}
			a, b := v.nameOf(2), v.nameOf(4)
			want := strings.Compare(a, b)
			if got := v.compareNames(2, 4); got != want || v.compareName(2, b) != want || v.named(2, b) != (a == b) {
				t.Errorf("%s and %s: %d, %d, want %d", x, y, got, v.compareName(2, b), want)
			}
		}
	}
}
