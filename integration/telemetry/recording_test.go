package telemetry

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"junction/integration/harness"
)

// recording is the series that Prometheus has of some targets. A test scrapes the real program, and says for
// how many minutes it was in that state: the time between two scrapes is longer in the recording than in the
// run.
type recording struct {
	t       *testing.T
	length  int // in minutes: Prometheus scrapes, and evaluates the rules, once a minute
	values  map[string]*strings.Builder
	lengths map[string]int     // of values
	last    map[string]float64 // values of counters
	gone    map[string]bool    // series that have ended
}

func newRecording(t *testing.T) *recording {
	t.Helper()
	needPrometheus(t)
	return &recording{t: t, values: map[string]*strings.Builder{}, lengths: map[string]int{}, last: map[string]float64{},
		gone: map[string]bool{}}
}

// target is a process that Prometheus scrapes.
type target struct {
	labels string // beside the job
	text   string // of the scrape; "" if there is no answer
}

// at returns the target of a running program.
func at(t *testing.T, instance string, p *harness.Program) target {
	t.Helper()
	return target{labels: `instance="` + instance + `"`, text: mustScrape(t, p)}
}

// with returns the target with other values of series, which the scrape must have.
func (g target) with(t *testing.T, edits map[string]string) target {
	t.Helper()
	g.text = edit(t, g.text, edits)
	return g
}

// edit returns the text of a scrape with other values of series, which it must have.
func edit(t *testing.T, text string, edits map[string]string) string {
	t.Helper()
	for series, value := range edits {
		begin := strings.Index(text, "\n"+series+" ")
		if begin < 0 {
			t.Fatalf("the scrape has no series %s:\n%s", series, text)
		}
		begin += len("\n" + series + " ")
		text = text[:begin] + value + text[begin+strings.IndexByte(text[begin:], '\n'):]
	}
	return text
}

// hold records that the targets are as they are for some minutes. Counters grow evenly to their values. other
// has the values of series of other jobs.
func (r *recording) hold(minutes int, other map[string]float64, targets ...target) {
	r.t.Helper()
	n, now := minutes, map[string]bool{}
	for series, v := range other {
		now[series] = true
		r.append(series, n, v, 0)
	}
	for _, g := range targets {
		labels := `{job="junction",` + g.labels
		up := 1.0
		if g.text == "" {
			up = 0
		}
		now["up"+labels+"}"] = true
		r.append("up"+labels+"}", n, up, 0)
		counts := map[string]bool{}
		for line := range strings.Lines(g.text) {
			line = strings.TrimSpace(line)
			if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
				counts[words[2]] = words[3] != "gauge"
			}
			if line == "" || line[0] == '#' {
				continue
			}
			series, text := line[:strings.LastIndexByte(line, ' ')], line[strings.LastIndexByte(line, ' ')+1:]
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				r.t.Fatalf("%s: %v", line, err)
			}
			name, own, _ := strings.Cut(series, "{")
			full := name + labels + "}"
			if own != "" {
				full = name + labels + "," + own
			}
			now[full] = true
			family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if !counts[name] && !counts[family] {
				r.append(full, n, v, 0)
				continue
			}
			before, known := r.last[full]
			if !known && r.length == 0 {
				before = v
			} else if before > v { // another process
				before = 0
			}
			r.last[full] = v
			step := (v - before) / float64(n)
			r.append(full, n, before+step, step)
		}
	}
	r.length += n
	for series := range r.values {
		if !now[series] && !r.gone[series] { // Prometheus marks the end of a series
			r.gone[series] = true
			r.values[series].WriteString(" stale")
			r.lengths[series]++
		}
	}
}

// append adds n values to a series: v, v+step and so on.
func (r *recording) append(series string, n int, v, step float64) {
	b := r.values[series]
	if b == nil {
		b = &strings.Builder{}
		r.values[series] = b
	}
	if missing := r.length - r.lengths[series]; missing > 0 {
		fmt.Fprintf(b, " _x%d", missing)
	}
	sign := "+"
	if step < 0 {
		sign, step = "-", -step
	}
	fmt.Fprintf(b, " %s%s%sx%d", plain(v), sign, plain(step), n-1)
	r.lengths[series], r.gone[series] = r.length+n, false
}

// plain writes a number as promtool reads it, without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// mustRing has promtool evaluate the rules over the recording. Exactly these alerts ring in it, and they do so
// until its end.
func (r *recording) mustRing(alerts ...string) {
	r.t.Helper()
	var text strings.Builder
	dir, rules := r.t.TempDir(), mustRead(r.t, "cmd/junction/deploy/alerts.yaml")
	asked := map[string]bool{} // all words of the rules, the names of metrics among them
	for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(rules, -1) {
		asked[word] = true
	}
	if err := os.WriteFile(filepath.Join(dir, "alerts.yaml"), []byte(rules), 0o600); err != nil {
		r.t.Fatal(err)
	}
	text.WriteString("rule_files: [alerts.yaml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n")
	for _, series := range slices.Sorted(maps.Keys(r.values)) {
		if name, _, _ := strings.Cut(series, "{"); !asked[name] { // promtool evaluates for each series that it loads
			continue
		}
		fmt.Fprintf(&text, "  - { series: '%s', values: '%s' }\n", strings.ReplaceAll(series, "'", "''"), r.values[series])
	}
	text.WriteString("  promql_expr_test:\n")
	for _, firing := range []string{fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing"}[%dm])`, r.length+1),
		`ALERTS{alertstate="firing"}`} {
		fmt.Fprintf(&text, "  - expr: group by (alertname) (%s)\n    eval_time: %dm\n    exp_samples:\n", firing, r.length)
		for _, name := range alerts {
			fmt.Fprintf(&text, "    - { labels: '{alertname=\"%s\"}', value: 1 }\n", name)
		}
	}
	file := filepath.Join(dir, "test.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if out, err := promtool(r.t.Context(), "", "test", "rules", file); err != nil {
		r.t.Errorf("want the alerts %q: %v\n%.3000s", alerts, err, out)
	}
}
