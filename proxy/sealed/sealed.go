// Package sealed is what clients carry for Junction between their requests: the requestState of a
// modern client (state.go), task IDs, and cursors of lists. Clients cannot read or change the content.
// This package defines the content and how it is sealed. The core decides what it means for a request.
package sealed

import (
	"encoding/binary"
	"encoding/json"

	"junction/auth/seal"
)

// Sealer seals and opens what clients carry. It is immutable.
type Sealer struct {
	cursors *seal.Box
	states  *seal.Box // requestState
	tasks   *seal.Box // task IDs
	maker   string    // identifies a process that is alone; else ""
}

// New returns a Sealer. maker identifies a process that is alone; it is "" if the process has members.
func New(key *seal.Key, maker string) *Sealer {
	return &Sealer{cursors: key.Box("cursor"), states: key.Box("state"), tasks: key.Box("task"), maker: maker}
}

// Cursor is the content of a cursor: the print of the caller's list, and the offset. A changed list has
// another print.
type Cursor struct {
	Print  uint64
	Whole  uint64 // print of the list of all callers, which identifies the snapshot; 0 for none
	Offset uint32
	// Scope identifies the endpoint and the principal. Elsewhere the cursor is invalid.
	Scope string
}

// Cursor returns a sealed cursor.
func (s *Sealer) Cursor(c Cursor) string {
	b := binary.BigEndian.AppendUint64(nil, c.Print)
	b = binary.BigEndian.AppendUint64(b, c.Whole)
	b = binary.BigEndian.AppendUint32(b, c.Offset)
	return s.cursors.Seal(append(b, c.Scope...))
}

// OpenCursor returns the content of a cursor. It returns false if Cursor has not made it.
func (s *Sealer) OpenCursor(sealed string) (c Cursor, ok bool) {
	b, err := s.cursors.Open(sealed)
	if err != nil || len(b) < 20 {
		return c, false
	}
	return Cursor{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:]),
		string(b[20:])}, true
}

// Task is the content of a task ID.
type Task struct {
	Upstream  string `json:"u"`
	ID        string `json:"t"`
	Tool      string `json:"n"` // as the client sent it
	Endpoint  string `json:"e"`
	Principal string `json:"w"`
	// Folder is the path of the folder in which the call was made, and Roots are the roots of the client that it
	// was taken from; empty for none. Place is upstream.Folders.Key of them.
	Folder string   `json:"f,omitempty"`
	Roots  []string `json:"r,omitempty"`
	Place  string   `json:"l,omitempty"`
	// Forwarded are the headers of the client that the server got with the call: name and value
	Forwarded [][2]string `json:"h,omitempty"`
}

// Task returns a sealed task ID.
func (s *Sealer) Task(t Task) string {
	text, _ := json.Marshal(t) // strings: this cannot fail
	return s.tasks.Seal(text)
}

// OpenTask returns the content of a task ID. It returns false if Task has not made it.
func (s *Sealer) OpenTask(sealed string) (t Task, ok bool) {
	text, err := s.tasks.Open(sealed)
	return t, err == nil && json.Unmarshal(text, &t) == nil
}
