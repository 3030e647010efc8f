package clients

import (
	"bytes"
	"unicode/utf8"
)

// A change is one edit of a file: the bytes Old became New.
type change struct {
	At     int    `json:"at"`     // the offset
	Before string `json:"before"` // some bytes before the change, which tell where it is
	Old    string `json:"old"`
	New    string `json:"new"`
	After  string `json:"after"`
}

// around is how many bytes around a change are remembered.
const around = 40

// diff returns the smallest change that makes b of a.
func diff(a, b []byte) change {
	begin := 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	end := 0
	for end < min(len(a), len(b))-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	for begin > 0 && !(utf8.RuneStart(at(a, begin)) && utf8.RuneStart(at(b, begin))) {
		begin-- // the record is JSON, which keeps whole characters only
	}
	for end > 0 && (!utf8.RuneStart(at(a, len(a)-end)) || !utf8.RuneStart(at(b, len(b)-end))) {
		end--
	}
	before, after := max(0, begin-around), min(len(a), len(a)-end+around)
	for before < begin && !utf8.RuneStart(a[before]) {
		before++
	}
	for after > len(a)-end && !utf8.RuneStart(at(a, after)) {
		after--
	}
	return change{
		At:     begin,
		Before: string(a[before:begin]), After: string(a[len(a)-end : after]),
		Old: string(a[begin : len(a)-end]), New: string(b[begin : len(b)-end]),
	}
}

// at returns a byte that may be just after the end.
func at(text []byte, i int) byte {
	if i < len(text) {
		return text[i]
	}
	return 0
}

// undo returns text without the change. ok is false if the place of the change is not certain.
func (c change) undo(text []byte) (out []byte, ok bool) {
	if begin := c.At - len(c.Before); begin >= 0 && begin <= len(text) &&
		bytes.HasPrefix(text[begin:], []byte(c.Before+c.New+c.After)) { // nothing before it has changed
		return append(append(bytes.Clone(text[:c.At]), c.Old...), text[c.At+len(c.New):]...), true
	}
	for _, near := range [][2]string{{c.Before, c.After}, {c.Before, ""}, {"", c.After}, {"", ""}} {
		find := near[0] + c.New + near[1]
		if c.New == "" && find == "" || bytes.Count(text, []byte(find)) != 1 {
			continue
		}
		i := bytes.Index(text, []byte(find)) + len(near[0])
		return append(append(bytes.Clone(text[:i]), c.Old...), text[i+len(c.New):]...), true
	}
	return nil, false
}
