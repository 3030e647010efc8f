package redact

import (
	"bytes"
	"container/list"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"junction/auth/seal"
)

// Limits of a Memory. Each text counts perText bytes more than it has, so that an account has at most
// maxAccount/perText texts.
const (
	maxText    = 16 << 10        // bytes of one text
	maxMessage = 1000            // texts of one message
	maxAccount = 1 << 20         // bytes of one account
	maxMemory  = 64 << 20        // bytes of all accounts
	perText    = 1 << 10         // bytes
	lasts      = time.Hour       // since the last use of a text
	swept      = 5 * time.Minute // pause between two searches for expired texts
	compared   = 16              // accounts that are compared to find a large one
)

// Memory keeps text that redactions have removed, so that it can come back in an argument
// (Redactor.Arguments), and is found in later answers (known.go). A text belongs to one session and one
// upstream. The texts are sealed with a key of this process, never leave it, and end with the session,
// an hour after their last use, and when their upstream is replaced. If an account has too many, the
// longest unused ones are dropped. If all accounts together have too many, one of the largest accounts
// loses its longest unused text.
//
// The zero value is empty. Memory is safe for concurrent use.
type Memory struct {
	once   sync.Once
	secret []byte
	seed   uint64 // odd; for removed.head
	box    *seal.Box

	mu       sync.Mutex
	sessions map[string]map[textKey]*removed
	accounts map[string]*account
	bytes    int
	sweeping *time.Timer // nil while the Memory is empty
}

// textKey identifies a text of one session.
type textKey struct {
	source    any
	reference string
}

// removed is one text.
type removed struct {
	key     textKey
	name    string // of the rule
	sealed  string // inside of a JSON string, with its escapes; or a number
	number  bool
	head    uint32 // see headOf
	escaped bool   // JSON may escape the start of the text
	ends    time.Time
	account *account
	session string
	place   *list.Element // of account.order
}

// account has the texts of one principal.
type account struct {
	name  string
	order list.List // of *removed, latest use first
	bytes int
}

// Owner is the caller and the upstream of a message.
type Owner struct {
	Account  string // pays for the memory
	Session  string // the texts are for this session only, or for one program of a principal
	Upstream string // name
	Source   any    // the upstream itself: another one of this name does not get the texts. It must be comparable.
}

// share is the part of a Memory for one owner.
type share struct {
	memory *Memory
	owner  Owner
	found  *knownTexts // if it is not nil: what is removed; nothing is kept
}

// begin makes the key of the process.
func (m *Memory) begin() {
	m.once.Do(func() {
		key, _ := seal.NewKey(seal.NewSecret()) // cannot fail: the size is right
		m.secret, m.box = key.Secret("references"), key.Box("removed text")
		m.seed = binary.LittleEndian.Uint64(key.Secret("heads")) | 1
	})
}

// put keeps a text that a rule has removed, and returns its reference; "" if the text is too long. The
// reference is always the same for a text of one owner and rule, and cannot be computed from it.
func (o *share) put(name string, inside, plain []byte, number bool) string {
	if len(inside) > maxText {
		return ""
	}
	m := o.memory
	m.begin()
	head, escaped := m.headOf(plain)
	if bytes.ContainsRune(plain, utf8.RuneError) {
		plain = inside // half surrogate pairs differ only there
	}
	key := textKey{o.owner.Source, o.reference(name, plain, number)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.sessions[o.owner.Session][key]; t != nil {
		m.use(t)
		return key.reference
	}
	t := &removed{key: key, name: name, sealed: m.box.Seal(inside), number: number, head: head, escaped: escaped,
		session: o.owner.Session, account: m.accounts[o.owner.Account]}
	if t.account == nil {
		t.account = &account{name: o.owner.Account}
	}
	m.add(t)
	return key.reference
}

// reference returns the reference of a text: 80 bits.
func (o *share) reference(name string, plain []byte, number bool) string {
	h := hmac.New(sha256.New, o.memory.secret)
	for _, part := range [...]string{o.owner.Account, o.owner.Session, o.owner.Upstream, name} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	if number {
		h.Write([]byte{1})
	}
	h.Write(plain)
	return references.EncodeToString(h.Sum(nil)[:referenceSize*5/8])
}

// references is the alphabet of references, and referenceSize their length.
var references = base32.StdEncoding.WithPadding(base32.NoPadding)

const referenceSize = 16

// get returns a text, and whether it was a number. ok is false if this owner has no such text of the
// rule.
func (o *share) get(name, reference string) (inside []byte, number, ok bool) {
	m := o.memory
	m.mu.Lock()
	t := m.sessions[o.owner.Session][textKey{o.owner.Source, reference}]
	if t == nil || t.name != name || !time.Now().Before(t.ends) {
		m.mu.Unlock()
		return nil, false, false
	}
	m.use(t)
	m.mu.Unlock()
	inside, err := m.box.Open(t.sealed)
	return inside, t.number, err == nil
}

// has reports whether this owner has a text of the rule.
func (o *share) has(name, reference string) bool {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	t := o.memory.sessions[o.owner.Session][textKey{o.owner.Source, reference}]
	return t != nil && t.name == name && time.Now().Before(t.ends)
}

// use makes a text the latest of its account; m.mu is held.
func (m *Memory) use(t *removed) {
	t.ends = time.Now().Add(lasts)
	t.account.order.MoveToFront(t.place)
}

// add adds a text, and drops others if there is no room; m.mu is held.
func (m *Memory) add(t *removed) {
	a := t.account
	t.ends, t.place = time.Now().Add(lasts), a.order.PushFront(t)
	if m.sessions[t.session] == nil {
		if m.sessions == nil {
			m.sessions, m.accounts = map[string]map[textKey]*removed{}, map[string]*account{}
		}
		m.sessions[t.session] = map[textKey]*removed{}
	}
	m.sessions[t.session][t.key], m.accounts[a.name] = t, a
	a.bytes += t.size()
	m.bytes += t.size()
	for a.bytes > maxAccount {
		m.drop(a.order.Back().Value.(*removed))
	}
	for m.bytes > maxMemory {
		m.drop(m.large().order.Back().Value.(*removed))
	}
	if m.sweeping == nil {
		m.sweeping = time.AfterFunc(swept, m.sweep)
	}
}

// large returns an account with many bytes; m.mu is held, and there is an account.
func (m *Memory) large() (most *account) {
	n := 0
	for _, a := range m.accounts {
		if most == nil || a.bytes > most.bytes {
			most = a
		}
		if n++; n == compared {
			break
		}
	}
	return most
}

func (t *removed) size() int { return perText + len(t.sealed) }

// drop removes a text; m.mu is held.
func (m *Memory) drop(t *removed) {
	a := t.account
	a.order.Remove(t.place)
	if a.bytes -= t.size(); a.order.Len() == 0 {
		delete(m.accounts, a.name)
	}
	m.bytes -= t.size()
	if its := m.sessions[t.session]; its[t.key] == t {
		if delete(its, t.key); len(its) == 0 {
			delete(m.sessions, t.session)
		}
	}
}

// sweep drops the expired texts, and runs again later if others are left.
func (m *Memory) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, a := range m.accounts {
		for e := a.order.Back(); e != nil && !now.Before(e.Value.(*removed).ends); e = a.order.Back() {
			m.drop(e.Value.(*removed))
		}
	}
	if m.sweeping = nil; len(m.accounts) > 0 {
		m.sweeping = time.AfterFunc(swept, m.sweep)
	}
}

// Forget drops the texts of a session.
func (m *Memory) Forget(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.sessions[session] {
		m.drop(t)
	}
}

// Retain drops the texts of each upstream for which still returns false.
func (m *Memory) Retain(still func(source any) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, its := range m.sessions {
		for key, t := range its {
			if !still(key.source) {
				m.drop(t)
			}
		}
	}
}
