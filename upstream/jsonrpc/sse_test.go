package jsonrpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"junction/upstream/jsonrpc"
)

// event is a jsonrpc.Event that outlives the next call of Next.
type event struct {
	name, data, id string
	retry          time.Duration
}

func (e event) String() string {
	return fmt.Sprintf("{%s %q id=%q retry=%v}", e.name, e.data, e.id, e.retry)
}

// readAll reads events until there is an error.
func readAll(r io.Reader, limit int) ([]event, error) {
	d := jsonrpc.NewEventReader(r, limit)
	var list []event
	for {
		e, err := d.Next()
		if err != nil {
			return list, err
		}
		list = append(list, event{e.Name, string(e.Data), e.ID, e.Retry})
	}
}

// readSlowly is what readAll should return for a stream without a limit, said as simply as
// possible.
func readSlowly(stream string) ([]event, error) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream), "\n")
	lines, rest := lines[:len(lines)-1], lines[len(lines)-1]

	var list []event
	var data []string
	e, id, worth, begun := event{}, "", false, false
	for _, line := range lines {
		if line == "" {
			if worth {
				id = e.id
				e.data = strings.Join(data, "\n")
				if e.name == "" {
					e.name = "message"
				}
				list = append(list, e)
			}
			e, data, worth, begun = event{id: id}, nil, false, false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		begun = begun || field != "" || !strings.HasPrefix(line, ":")
		switch field {
		case "event":
			e.name = value
		case "data":
			data, worth = append(data, value), true
		case "id":
			if !strings.Contains(value, "\x00") {
				e.id, worth = value, true
			}
		case "retry":
			n, err := strconv.Atoi(value)
			if err == nil && strings.Trim(value, "0123456789") == "" && n < 1<<31 {
				e.retry, worth = time.Duration(n)*time.Millisecond, true
			}
		}
	}
	if rest != "" || begun {
		return list, io.ErrUnexpectedEOF
	}
	return list, io.EOF
}

// streams are written with \n as line end, and read with each of the three.
var streams = []struct {
	stream string
	want   []event
	err    error
}{
	{"", nil, io.EOF},
	{"\n\n\n", nil, io.EOF},
	{"data: x\n\n", []event{{name: "message", data: "x"}}, io.EOF},
	{"\ufeffdata: x\n\n", []event{{name: "message", data: "x"}}, io.EOF},
	{"data: a\n\n\ufeffdata: x\n\n", []event{{name: "message", data: "a"}}, io.EOF}, // only at the beginning is it a mark
	{"\n\ufeffdata: x\n\n", nil, io.EOF},
	{"\ufeff", nil, io.EOF},
	{"\ufeff\ufeffdata: x\n\n", nil, io.EOF},
	{"data:x\n\ndata:  x \n\n", []event{{name: "message", data: "x"}, {name: "message", data: " x "}}, io.EOF},
	{"data: é𝄞\n\n", []event{{name: "message", data: "é𝄞"}}, io.EOF},
	{"data: a: b\n\n", []event{{name: "message", data: "a: b"}}, io.EOF},
	{"data: a\ndata: b\n\n", []event{{name: "message", data: "a\nb"}}, io.EOF},
	{"data: a\n: pause\ndata\ndata:\ndata: \ndata: b\n\n", []event{{name: "message", data: "a\n\n\n\nb"}}, io.EOF},
	{"data\n\n", []event{{name: "message"}}, io.EOF},
	{"event: endpoint\ndata: /m?s=1\n\n", []event{{name: "endpoint", data: "/m?s=1"}}, io.EOF},
	{"data: x\nevent:late\n\n", []event{{name: "late", data: "x"}}, io.EOF},
	{"event: a\nevent:\ndata: x\n\n", []event{{name: "message", data: "x"}}, io.EOF},
	{"event: lost\n\ndata: x\n\n", []event{{name: "message", data: "x"}}, io.EOF},
	{": hi\n\n:\n\ndata: x\n\n: bye\n", []event{{name: "message", data: "x"}}, io.EOF},
	{"id: 1\ndata: x\n\ndata: y\n\nid\ndata: z\n\ndata: w\n\n", []event{
		{name: "message", data: "x", id: "1"}, {name: "message", data: "y", id: "1"}, {name: "message", data: "z"}, {name: "message", data: "w"}}, io.EOF},
	{"id: 1\n\ndata: x\n\n", []event{{name: "message", id: "1"}, {name: "message", data: "x", id: "1"}}, io.EOF},
	{"id: a\x00b\n\ndata: x\n\n", []event{{name: "message", data: "x"}}, io.EOF},
	{"id: 1\nid: 2\ndata: x\n\n", []event{{name: "message", data: "x", id: "2"}}, io.EOF},
	{"retry: 1500\n\n", []event{{name: "message", retry: 1500 * time.Millisecond}}, io.EOF},
	{"id: 7\nretry: 10\ndata:\n\ndata: x\n\n", []event{{name: "message", id: "7", retry: 10 * time.Millisecond}, {name: "message", data: "x", id: "7"}}, io.EOF},
	{"retry: -1\n\nretry: 1.5\n\nretry: +1\n\nretry: 1_0\n\nretry:\n\nretry: 99999999999999999999\n\nretry: 2147483648\n\n", nil, io.EOF},
	{"Data: x\n\n data: x\n\ndata : x\n\ndatax: y\n\nunknown\n\n", nil, io.EOF},
	// The stream ends within an event: it is dropped, its id too.
	{"data: x\n\ndata: y\n", []event{{name: "message", data: "x"}}, io.ErrUnexpectedEOF},
	{"data: x\n\ndata: y", []event{{name: "message", data: "x"}}, io.ErrUnexpectedEOF},
	{"data: x\n\n:", []event{{name: "message", data: "x"}}, io.ErrUnexpectedEOF},
	{"event: endpoint\n", nil, io.ErrUnexpectedEOF},
	{"id: 1\n", nil, io.ErrUnexpectedEOF},
	{"d", nil, io.ErrUnexpectedEOF},
	{"\xef\xbb", nil, io.ErrUnexpectedEOF},
}

func TestEventReader(t *testing.T) {
	for _, test := range streams {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			stream := strings.ReplaceAll(test.stream, "\n", end)
			check := func(how string, r io.Reader) {
				t.Helper()
				got, err := readAll(r, 1000)
				if !slices.Equal(got, test.want) || err != test.err {
					t.Errorf("%q %s: %v, %v; want %v, %v", stream, how, got, err, test.want, test.err)
				}
			}
			check("whole", strings.NewReader(stream))
			check("byte by byte", iotest.OneByteReader(strings.NewReader(stream)))
			check("with its end", iotest.DataErrReader(strings.NewReader(stream)))
			for i := range len(stream) {
				check(fmt.Sprintf("cut at %d", i), io.MultiReader(strings.NewReader(stream[:i]), strings.NewReader(stream[i:])))
			}
			if got, err := readSlowly(stream); !slices.Equal(got, test.want) || err != test.err {
				t.Errorf("%q read slowly: %v, %v; want %v, %v", stream, got, err, test.want, test.err)
			}
		}
	}
}

// TestEventReaderMixedEnds has line ends of all kinds in one stream, and events that end in a CR
// which a LF may or may not follow.
func TestEventReaderMixedEnds(t *testing.T) {
	const stream = "data: a\r\n\rdata: b\n\r\ndata: c\r\r\ndata: d\n\ndata: e\r\r\r\n\n\rdata: f\r\n\r\n"
	want := []event{{name: "message", data: "a"}, {name: "message", data: "b"}, {name: "message", data: "c"}, {name: "message", data: "d"},
		{name: "message", data: "e"}, {name: "message", data: "f"}}
	for i := range len(stream) {
		got, err := readAll(io.MultiReader(strings.NewReader(stream[:i]), strings.NewReader(stream[i:])), 1000)
		if !slices.Equal(got, want) || err != io.EOF {
			t.Errorf("cut at %d: %v, %v; want %v", i, got, err, want)
		}
	}
}

// source is a stream that a test watches: how often it was asked, and how much room the reader had.
type source struct {
	chunks func() string // what comes next; "" at the end
	rest   string
	reads  int
	room   int // the most
}

func (s *source) Read(p []byte) (int, error) {
	s.reads++
	s.room = max(s.room, len(p))
	if s.rest == "" {
		if s.rest = s.chunks(); s.rest == "" {
			return 0, io.EOF
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// TestEventReaderDoesNotWait checks that an event comes out when it is there: on a live stream the
// next byte may be minutes away.
func TestEventReaderDoesNotWait(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		events := strings.ReplaceAll("data: 1\n\ndata: 2\n\n", "\n", end)
		s := &source{chunks: func() string { return events }}
		d := jsonrpc.NewEventReader(s, 1000)
		for i, want := range []string{"1", "2", "1", "2"} {
			e, err := d.Next()
			if err != nil || string(e.Data) != want || s.reads != i/2+1 {
				t.Errorf("%q: event %d is %q, %v, after %d reads; want %q after %d", events, i, e.Data, err, s.reads, want, i/2+1)
			}
		}
	}
}

func TestEventReaderLarge(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		large := strings.Repeat("0123456789abcdef", 1<<16)
		stream := strings.ReplaceAll(fmt.Sprintf("data: %s\n\ndata: small\n\nid: %s\ndata: %s\ndata: %s\n\n", large, large[:5000], large, large), "\n", end)
		want := []event{{name: "message", data: large}, {name: "message", data: "small"}, {name: "message", data: large + "\n" + large, id: large[:5000]}}
		got, err := readAll(strings.NewReader(stream), 4<<20)
		if !slices.Equal(got, want) || err != io.EOF {
			t.Errorf("with %q, %d events, %v; want %d large ones", end, len(got), err, len(want))
		}
	}
}

func TestEventReaderLimit(t *testing.T) {
	for _, test := range []struct {
		stream string
		limit  int // at which it can just be read
	}{
		{"data: 1234\n\n", 11},
		{"data: 1\n:::::\n\n", 14},
		{"data: 1\ndata: 2\n\n", 16},
		{"id: 1\ndata: 12\nretry: 1\n\n", 24},
		{"event: abcdef\ndata: 1\n\n", 13},
		{":23456789\ndata: 1\n\n", 9},
		{"data: " + strings.Repeat("x", 10000) + "\n\n", 10007},
	} {
		for _, end := range []string{"\n", "\r", "\r\n"} {
			stream := strings.ReplaceAll(test.stream, "\n", end)
			stream = strings.Repeat(stream, 4) // the limit is for each event, not for all
			for how, r := range map[string]func(io.Reader) io.Reader{"in blocks": iotest.DataErrReader, "byte by byte": iotest.OneByteReader} {
				if got, err := readAll(r(strings.NewReader(stream)), test.limit); err != io.EOF || len(got) != 4 {
					t.Errorf("%.40q %s with limit %d: %d events, %v; want 4", stream, how, test.limit, len(got), err)
				}
				if got, err := readAll(r(strings.NewReader(stream)), test.limit-1); err != jsonrpc.ErrEventTooLarge || len(got) > 0 {
					t.Errorf("%.40q %s with limit %d: %d events, %v; want %v", stream, how, test.limit-1, len(got), err, jsonrpc.ErrEventTooLarge)
				}
			}
		}
	}
}

// TestEventReaderMemory floods the reader with what is no event, and with what is an endless one.
func TestEventReaderMemory(t *testing.T) {
	const limit = 16 << 10
	for _, test := range []struct {
		chunk string
		room  int // what the buffer may grow to
		err   error
	}{
		{": keep-alive\n", 4096, io.EOF}, // without an empty line ever
		{": keep-alive\r", 4096, io.EOF},
		{": keep-alive\r\n\r\n", 4096, io.EOF},
		{"event: x\n", 4096, io.ErrUnexpectedEOF},
		{"unknown: x\n", 4096, io.ErrUnexpectedEOF},
		{"\n", 4096, io.EOF},
		{"data: x\n\n", 4096, io.EOF},
		{":" + strings.Repeat("x", 4000) + "\n", 4 * 4096, io.EOF},
		{"data: x\n", 4 * limit, jsonrpc.ErrEventTooLarge},
		{"data:\n", 4 * limit, jsonrpc.ErrEventTooLarge},
		{"id: x\n", 4 * limit, jsonrpc.ErrEventTooLarge},
		{"retry: 1\n:\n", 4 * limit, jsonrpc.ErrEventTooLarge},
		{"data: ", 4 * limit, jsonrpc.ErrEventTooLarge},
		{":", 4 * limit, jsonrpc.ErrEventTooLarge},
	} {
		left := 30 * limit
		s := &source{chunks: func() string {
			if left -= len(test.chunk); left < 0 {
				return ""
			}
			return test.chunk
		}}
		d := jsonrpc.NewEventReader(s, limit)
		var err error
		for err == nil {
			_, err = d.Next()
		}
		if err != test.err || s.room > test.room {
			t.Errorf("flood of %.20q: %v with a buffer of %d bytes; want %v with at most %d", test.chunk, err, s.room, test.err, test.room)
		}
	}
}

func TestEventReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	got, err := readAll(io.MultiReader(strings.NewReader("data: x\n\ndata: y\n"), iotest.ErrReader(broken)), 1000)
	if err != broken || !slices.Equal(got, []event{{name: "message", data: "x"}}) {
		t.Errorf("a stream that breaks: %v, %v; want one event, %v", got, err, broken)
	}
	if _, err := readAll(silent{}, 1000); err != io.ErrNoProgress {
		t.Errorf("a stream that says nothing: %v, want %v", err, io.ErrNoProgress)
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestAppendEvent(t *testing.T) {
	for _, test := range []struct{ id, data, want string }{
		{"", `{"a":1}`, "event: message\ndata: {\"a\":1}\n\n"},
		{"7-1", "{\r\n\"a\":\n1}", "event: message\nid: 7-1\ndata: {  \"a\": 1}\n\n"},
	} {
		got := jsonrpc.AppendEvent([]byte("x"), test.id, []byte(test.data))
		if string(got) != "x"+test.want {
			t.Errorf("AppendEvent(%q, %q) = %q, want %q", test.id, test.data, got, "x"+test.want)
		}
		list, err := readAll(bytes.NewReader(got[1:]), 1000)
		if err != io.EOF || len(list) != 1 || list[0].id != test.id || len(list[0].data) != len(test.data) {
			t.Errorf("%q is read as %v, %v", got, list, err)
		}
	}
}

// FuzzEventReader holds the reader against the simplest one, with the stream cut in two pieces or
// in single bytes.
func FuzzEventReader(f *testing.F) {
	for _, test := range streams {
		for i, end := range []string{"\n", "\r\n", "\r"} {
			f.Add([]byte(strings.ReplaceAll(test.stream, "\n", end)), len(test.stream)/2-i)
		}
	}
	f.Add([]byte(strings.Repeat("data: x\r\n", 1000)+"\n: "+strings.Repeat("y", 5000)), 4095)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		want, wantErr := readSlowly(string(stream))
		cut = min(max(cut, 0), len(stream))
		for _, r := range []io.Reader{
			bytes.NewReader(stream),
			iotest.OneByteReader(bytes.NewReader(stream)),
			io.MultiReader(bytes.NewReader(stream[:cut]), bytes.NewReader(stream[cut:])),
		} {
			if got, err := readAll(r, len(stream)+1); !slices.Equal(got, want) || err != wantErr {
				t.Errorf("%q cut at %d: %v, %v; want %v, %v", stream, cut, got, err, want, wantErr)
			}
		}
		// Whatever the limit is, what comes out before the error is the same.
		got, err := readAll(bytes.NewReader(stream), cut/2)
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || err != wantErr && err != jsonrpc.ErrEventTooLarge {
			t.Errorf("%q with limit %d: %v, %v; want the first of %v", stream, cut/2, got, err, want)
		}
	})
}

// TestEventReaderUsesMemory: what a reader was given to read into, the next one reads into; if an
// event needed more, that is what is left.
func TestEventReaderUsesMemory(t *testing.T) {
	memory := make([]byte, 0, 8<<10)
	for _, test := range []struct {
		size int
		same bool // the memory is enough
	}{{100, true}, {5000, true}, {20_000, false}, {20_000, true}, {100, true}} {
		text := bytes.Repeat([]byte{'a' + byte(test.size%7)}, test.size)
		before := memory
		d := jsonrpc.NewEventReader(bytes.NewReader(jsonrpc.AppendEvent(nil, "", text)), 1<<20)
		d.Use(&memory)
		e, err := d.Next()
		if err != nil || !bytes.Equal(e.Data, text) {
			t.Fatalf("an event of %d bytes: %v", test.size, err)
		}
		if same := &before[:1][0] == &memory[:1][0]; same != test.same || !bytes.Contains(memory[:cap(memory)], text) {
			t.Errorf("after an event of %d bytes the memory is of %d, that of before: %v, want %v", test.size, cap(memory), same, test.same)
		}
	}
	memory = nil
	d := jsonrpc.NewEventReader(strings.NewReader("data: 1\n\n"), 100)
	d.Use(&memory)
	if e, err := d.Next(); string(e.Data) != "1" || err != nil || cap(memory) == 0 {
		t.Errorf("with no memory: %q, %v, and %d bytes are left for the next", e.Data, err, cap(memory))
	}
}

func BenchmarkEventReader(b *testing.B) {
	for _, size := range []int{100, 10 << 10, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			stream := string(jsonrpc.AppendEvent(nil, "", bytes.Repeat([]byte("x"), size)))
			d := jsonrpc.NewEventReader(&source{chunks: func() string { return stream }}, 2<<20)
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{100, 10 << 10, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"s":"%s"}}}`, bytes.Repeat([]byte("x"), size))
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jsonrpc.Parse(text, 100); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
