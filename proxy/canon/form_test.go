package canon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"junction/upstream/raw"
)

// sameForm reports whether two texts have equal forms.
func sameForm(a, b string) bool {
	x, okA := Value([]byte(a))
	y, okB := Value([]byte(b))
	return okA && okB && bytes.Equal(x, y)
}

func TestForeignValueFormIgnoresSpelling(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":{"c":[1,2],"d":"é"}}`, ` { "b" : { "d" : "\u00e9" , "c" : [ 1 , 2 ] } , "\u0061" : 1 } `},
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1E+1`, `1.000`, `100e-2`, `0.001e3`, `1E00`},
		{`0`, `-0`, `0.0`, `0e5`, `-0.00E-7`, `0e99999999999999999999999`},
		{`-1200`, `-1.2e3`, `-12E2`, `-0.12e+0004`},
		{`1e999999999`, `10e999999998`, `0.1e1000000000`},
		{`"\ud83d\ude00/\b"`, `"😀\/\u0008"`},
		{`{}`, ` { } `}, {`[]`, ` [ ] `}, {`[{},[]]`, `[ {} , [ ] ]`},
		{`{"😀":1,"\uffff":2}`, `{"` + "\uffff" + `":2,"\ud83d\ude00":1}`},
	} {
		for _, text := range same {
			if !sameForm(same[0], text) {
				t.Errorf("%s and %s have different forms", same[0], text)
			}
		}
	}
}

func TestForeignValueFormTellsValuesApart(t *testing.T) {
	all := []string{`1`, `"1"`, `-1`, `true`, `"true"`, `false`, `null`, `"null"`, `[]`, `{}`, `[1]`, `[[1]]`, `[1,1]`, `{"a":1}`, `{"a":[1]}`, `{"A":1}`, `{"a":1,"b":1}`, `""`, `"1e0"`, `1e1`,
		`9007199254740992`, `9007199254740993`, `0.1`, `0.1000000000000000055`, `1e308`, `1e309`, `1e310`, `-1e309`, `5e-324`, `1e-400`, `0`, `[0]`, `[null]`,
		`1e99999999999999999999`, `1e99999999999999999998`, `"~1e99999999999999999999"`, `"é"`, `"e\u0301"`, `"\u0000"`, `"\\u0000"`, `{"":1}`, `{"a":{"b":1}}`,
		`{"a":"` + strings.Repeat("x", longObject) + `"}`, `{"a":"` + strings.Repeat("y", longObject) + `"}`}
	for i, a := range all {
		for k, b := range all {
			if sameForm(a, b) != (i == k) {
				t.Errorf("%.60s and %.60s: same form = %v", a, b, i != k)
			}
		}
	}
}

func TestForeignValueFormRejectsAmbiguousText(t *testing.T) {
	for _, text := range []string{`{"a":1,"a":1}`, `{"a":1,"b":2,"\u0061":1}`, `[{"x":{"a":1,"a":2}}]`, `"\ud800"`, `{"\udc00":1}`, "\"\xff\"", "{\"a\xc3\":1}", `["\ud83d\u0041"]`} {
		if form, ok := Value([]byte(text)); ok {
			t.Errorf("%q has the form %q, want none", text, form)
		}
	}
}

// TestForeignValueFormIsLinear nests objects as deeply as a message may, around a large string,
// with keys that have to be sorted at each level.
func TestForeignValueFormIsLinear(t *testing.T) {
	depth := raw.DefaultDepth - 1
	large := strings.Repeat("x", 4<<20)
	text := strings.Repeat(`{"z":0,"a":`, depth) + `"` + large + `"` + strings.Repeat(`}`, depth)
	begin := time.Now()
	_, ok := Value([]byte(text))
	if took := time.Since(begin); !ok || took > 5*time.Second {
		t.Errorf("ok = %v after %v", ok, took)
	}
	if n := testing.AllocsPerRun(1, func() { Value([]byte(text)) }); n > float64(10*depth) {
		t.Errorf("%v allocations", n)
	}
}

// value is what encoding/json reads of a text, with numbers as exact fractions. It is false if a
// key occurs twice, a string is not Unicode, or a number is very long.
func value(text string) (string, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var b strings.Builder
	if !readValue(d, &b) || !utf8.ValidString(text) {
		return "", false
	}
	for i := 0; i < len(text); i++ { // encoding/json replaces half a surrogate pair, and nothing else in valid UTF-8
		if text[i] == '"' {
			end, _ := raw.StringEnd([]byte(text), i)
			if _, err := raw.String([]byte(text[i:end])); err != nil {
				return "", false
			}
			i = end - 1
		}
	}
	return b.String(), true
}

func readValue(d *json.Decoder, b *strings.Builder) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	switch v := token.(type) {
	case json.Number:
		_, power, _ := strings.Cut(strings.ToLower(v.String()), "e")
		if len(power) > 4 { // too expensive as a fraction
			return false
		}
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return false
		}
		b.WriteString("n" + r.RatString())
	case json.Delim:
		return readInside(d, v, b)
	default:
		fmt.Fprintf(b, "%T%q", v, fmt.Sprint(v))
	}
	return true
}

func readInside(d *json.Decoder, open json.Delim, b *strings.Builder) bool {
	var parts []string
	seen := map[string]bool{}
	for d.More() {
		key := ""
		if open == '{' {
			token, err := d.Token()
			if err != nil || seen[token.(string)] {
				return false
			}
			seen[token.(string)] = true
			key = fmt.Sprintf("%q:", token)
		}
		var inner strings.Builder
		if !readValue(d, &inner) {
			return false
		}
		parts = append(parts, key+inner.String())
	}
	if _, err := d.Token(); err != nil {
		return false
	}
	if open == '{' {
		slices.Sort(parts)
	}
	fmt.Fprintf(b, "%v[%s]", open, strings.Join(parts, ","))
	return true
}

// respell writes a text in another way: members in another order, characters as escapes, numbers
// with another exponent. Sometimes it changes a value on the way.
func respell(r *rand.Rand, text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return respellNext(r, d)
}

func respellNext(r *rand.Rand, d *json.Decoder) string {
	token, _ := d.Token()
	if r.IntN(200) == 0 { // another value of the same or of another type
		if _, scalar := token.(json.Delim); !scalar {
			return []string{`1`, `"1"`, `true`, `null`, `""`, `0`, `10`}[r.IntN(7)]
		}
	}
	switch v := token.(type) {
	case json.Number:
		return respellNumber(r, v.String())
	case string:
		return respellString(r, v)
	case json.Delim:
		var parts []string
		for d.More() {
			key := ""
			if v == '{' {
				k, _ := d.Token()
				key = respellString(r, k.(string)) + " : "
			}
			parts = append(parts, key+respellNext(r, d))
		}
		_, _ = d.Token()
		if v == '[' {
			return "[" + strings.Join(parts, " , ") + "]"
		}
		r.Shuffle(len(parts), func(i, k int) { parts[i], parts[k] = parts[k], parts[i] })
		return "{\n" + strings.Join(parts, ",\t") + " }"
	case nil:
		return "null"
	}
	return fmt.Sprint(token)
}

func respellString(r *rand.Rand, s string) string {
	b := []byte{'"'}
	for _, c := range s {
		switch quoted := raw.Quote(string(c)); {
		case r.IntN(2) == 0 && c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, quoted[1:len(quoted)-1]...)
		}
	}
	return string(append(b, '"'))
}

// respellNumber moves the point by up to five digits and corrects the exponent.
func respellNumber(r *rand.Rand, n string) string {
	mantissa, power, _ := strings.Cut(strings.ToLower(n), "e")
	exponent, ok := new(big.Int).SetString(strings.TrimPrefix("0"+power, "0+"), 10)
	if rest, minus := strings.CutPrefix(power, "-"); minus {
		exponent, ok = new(big.Int).SetString("-"+rest, 10)
	}
	if !ok {
		return n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	for range r.IntN(5) {
		if fraction == "" {
			fraction = "0"
		}
		whole, fraction = whole+fraction[:1], fraction[1:]
		exponent.Sub(exponent, big.NewInt(1))
	}
	whole, negative := strings.CutPrefix(whole, "-")
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if negative {
		whole = "-" + whole
	}
	return whole + "." + fraction + strings.Repeat("0", 1+r.IntN(3)) + "E" + exponent.String()
}

var foreignValues = []string{`{"b":1,"a":[true,null,"x\u0041"],"c":{"z":-12.50e3,"y":"é😀\n"}}`, `[1.0,-0,1e400,9007199254740993,0.1000000000000000055]`, `"\ud800"`, `{"a":1,"a":2}`,
	`{"a":{"b":{"c":{"d":[{},[],"",0]}}}}`, `{"long":"` + strings.Repeat("text ", 200) + `","a":{"more":"` + strings.Repeat("x", 600) + `","0":1}}`, ` 1 `, `1e-300`, `{"\u0000":"\u0000"}`}

// holdForms fails unless two texts have equal forms exactly if they have equal values.
func holdForms(t *testing.T, a, b string) (equal bool) {
	t.Helper()
	x, okX := value(a)
	y, okY := value(b)
	for text, ok := range map[string]bool{a: okX, b: okY} {
		if _, has := Value([]byte(text)); ok && !has {
			t.Errorf("%q has no form", text)
		}
	}
	if equal = okX && okY && x == y; okX && okY && sameForm(a, b) != equal {
		t.Errorf("%q\nand %q: same form = %v, same value = %v", a, b, !equal, equal)
	}
	return equal
}

func TestForeignValueFormsAreEqualIfValuesAre(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	equal, other, rounds := 0, 0, 2000
	if testing.Short() {
		t.Attr("short", "true")
		rounds = 200
	}
	for range rounds {
		for _, text := range foreignValues {
			if _, ok := value(text); !ok {
				continue
			}
			if holdForms(t, text, respell(r, text)) {
				equal++
			} else {
				other++
			}
		}
	}
	if equal < rounds/2 || other < rounds/20 {
		t.Errorf("%d pairs with equal values, %d with different ones", equal, other)
	}
}

// FuzzValueForm compares two texts, and each with another spelling of it, by their forms and as
// encoding/json reads them.
func FuzzValueForm(f *testing.F) {
	for i, text := range foreignValues {
		f.Add(text, foreignValues[(i+1)%len(foreignValues)], uint64(i))
	}
	f.Fuzz(func(t *testing.T, a, b string, seed uint64) {
		if !json.Valid([]byte(a)) || !json.Valid([]byte(b)) {
			return
		}
		holdForms(t, a, b)
		if _, ok := value(a); ok {
			holdForms(t, a, respell(rand.New(rand.NewPCG(seed, 1)), a))
		}
	})
}
