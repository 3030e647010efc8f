package record

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"junction/cmd/junction/base/config"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/files"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// Calls do not wait for the disk, which may be slow, full or missing. Lines wait in memory, and a
// goroutine writes them.

const (
	auditDelay = 50 * time.Millisecond // how long a line waits for others
	auditBatch = 64 << 10              // this many bytes are written without a delay
	auditQueue = 8 << 20               // limit of waiting bytes; a single line may exceed it
	auditRetry = time.Second           // after a failed write
	auditCalm  = time.Minute           // between two error messages in the log
	auditText  = 200                   // limit, in bytes, of a text that a client or a server chooses
	auditNoted = time.Hour             // between two lines of the log with the last hash
)

// Audit writes one line of JSON for each call and each event into one file. Its methods may be called
// concurrently.
type Audit struct {
	config config.Audit
	log    *slog.Logger
	second Sink // gets each line, too; nil without config.OTLP

	// Owned by the goroutine once it has started.
	out     io.Writer   // the file, or standard error; nil after a file could not be opened
	info    fs.FileInfo // of the file; nil for standard error
	torn    bool        // the last write ended in the middle of a line
	last    Link        // of the lines that the goroutine has taken
	noted   Link        // that the log has
	notedAt time.Time
	before  *Audit // whose file start takes over, open and locked; nil if there is none
	left    bool   // Close has lost lines that last counts

	wake   chan struct{} // 1-buffered: lines are waiting
	urgent chan struct{} // 1-buffered: write without a delay
	ctx    context.Context
	end    context.CancelFunc // of ctx; called by Close
	tasks  sync.WaitGroup

	mu           sync.Mutex
	waiting      []byte // whole lines
	held         int    // bytes that the goroutine has taken but not yet written
	dropped      int    // lines since the last line that was accepted
	lost         int    // lines since the log last reported success
	failure      error  // of the last write; nil after a success
	droppedLines int64  // lines that were dropped since the start
	complained   time.Time
	reported     bool // the log has reported a failure
	moved        bool // Reopen was called
	over         bool // Close was called
	handed       bool // another Audit takes the file over
}

// openAudit opens the file. Lines wait in memory until start is called. before is the Audit in force, or
// nil: if it writes the same file, the file stays open, so that no other process can lock it meanwhile.
func openAudit(c config.Audit, before *Audit, stderr io.Writer, log *slog.Logger) (*Audit, error) {
	a := &Audit{config: c, log: log, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
	a.ctx, a.end = context.WithCancel(context.Background())
	if c.File == config.AuditStderr {
		a.out = stderr
	} else if before != nil && before.config.File == c.File {
		a.before = before
	} else if err := a.open(); err != nil {
		return nil, fmt.Errorf("audit.file: %s: %w; Junction does nothing that it cannot audit; make the file "+
			"writable, or name another file", c.File, files.Reason(err))
	}
	return a, nil
}

// start continues the chain of the file, and starts the goroutine, which Close ends. No other Audit may
// write the file.
func (a *Audit) start() {
	old := a.before
	if a.before = nil; old != nil {
		a.out, a.info, a.torn, a.last = old.out, old.info, old.torn, old.last
	}
	if a.info != nil && a.info.Mode().IsRegular() && (old == nil || old.left) {
		var err error
		if a.last, a.torn, err = resume(a.config.File); err != nil {
			a.log.Warn("a file of the audit cannot be read; the numbers go on after the last line that can be", "file",
				a.config.File, "last", a.last.Number, "error", files.Reason(err))
		}
		if a.torn {
			a.log.Warn("the last line of the audit is incomplete; it stays, and the next line follows it", "file",
				a.config.File, "last", a.last.Number)
		}
	}
	a.noted, a.notedAt = a.last, time.Now()
	a.tasks.Go(a.run)
}

// record accepts the line of a call. It does not wait for the disk: without room, it drops and
// counts the line. It returns false after Close.
func (a *Audit) record(c *proxy.CallInfo) bool {
	var digest [sha256.Size]byte
	if c.Arguments != nil {
		digest = sha256.Sum256(c.Arguments)
	}
	return a.add(func(b []byte, now time.Time) []byte { return appendCall(b, now, c, &digest, a.config.Arguments) })
}

// add accepts a line, as record does. appended appends the line to b.
func (a *Audit) add(appended func(b []byte, now time.Time) []byte) bool {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	before := len(a.waiting)
	if a.dropped > 0 {
		a.waiting = appendDropped(a.waiting, now, a.dropped)
	}
	a.waiting = appended(a.waiting, now)
	if len(a.waiting)+a.held > auditQueue && before+a.held > 0 {
		a.waiting = a.waiting[:before]
		a.dropped++
		a.lost++
		a.droppedLines++
		a.complain(now)
		return true
	}
	a.dropped = 0
	if before == 0 {
		pace.Wake(a.wake)
	}
	if len(a.waiting) >= auditBatch {
		pace.Wake(a.urgent)
	}
	return true
}

// Reopen opens the file again after a log rotation has renamed it. Without Reopen, this happens
// before the next line is written.
func (a *Audit) Reopen() {
	a.mu.Lock()
	a.moved = true
	a.mu.Unlock()
	pace.Wake(a.wake)
	pace.Wake(a.urgent)
}

// handOver is Close for an Audit that start gives the file.
func (a *Audit) handOver() {
	a.mu.Lock()
	a.handed = true
	a.mu.Unlock()
	a.Close()
}

// Close writes the waiting lines, closes the file and waits for the goroutine to end. It may be
// called more than once.
func (a *Audit) Close() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.end()
	a.tasks.Wait()
}

// run writes all waiting lines with one write. Lines of a failed write keep their room and are
// retried before newer ones.
func (a *Audit) run() {
	var buffer, linked, left []byte // left is the part of linked that is still to be written
	for going := true; going; {
		select {
		case <-a.wake:
		case <-a.ctx.Done():
		}
		if len(left) > 0 {
			going = pace.Sleep(a.ctx, auditRetry, nil)
		} else {
			going = pace.Sleep(a.ctx, auditDelay, a.urgent)
		}
		left = a.write(left)
		if len(left) == 0 {
			buffer = a.take(buffer)
			if cap(linked) > 1<<20 {
				linked = nil // too large: it held a very long line, or a backlog
			}
			linked = a.last.appendLinked(linked[:0], buffer)
			if a.second != nil && len(linked) > 0 {
				a.second.Add(linked) // also while the file cannot be written
			}
			left = a.write(linked)
		}
		if len(left) > 0 {
			pace.Wake(a.wake)
		}
	}
	a.mu.Lock()
	handed := a.handed
	a.mu.Unlock()
	if f, ok := a.out.(*os.File); ok && a.info != nil && !handed {
		f.Close()
	}
	if a.left = len(left) > 0; !a.left {
		a.note()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if lost := a.lost + bytes.Count(left, []byte{'\n'}); len(left) > 0 || lost > 0 && !a.reported {
		a.log.Error("audit lines are lost", "file", a.config.File, "dropped", lost, "error", a.failure)
	}
}

// take returns the waiting lines. The next lines go into spare, a buffer that take has returned
// before.
func (a *Audit) take(spare []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dropped > 0 {
		a.waiting = appendDropped(a.waiting, time.Now(), a.dropped)
		a.dropped = 0
	}
	taken := a.waiting
	if a.held = len(taken); cap(spare) > 1<<20 {
		spare = nil // too large: it held a very long line, or a backlog
	}
	a.waiting = spare[:0]
	select {
	case <-a.urgent: // it was a signal for the lines taken now
	default:
	}
	return taken
}

// write writes whole lines and returns those that it could not write.
func (a *Audit) write(lines []byte) (left []byte) {
	n, err := 0, a.ready()
	if err == nil && a.torn {
		_, err = a.out.Write([]byte{'\n'}) // ends the torn line; all of that line is written again
		a.torn = err != nil
	}
	if err == nil && len(lines) > 0 {
		n, err = a.out.Write(lines)
		whole := bytes.LastIndexByte(lines[:n], '\n') + 1
		a.torn = whole < n
		lines = lines[whole:]
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.failure = len(lines), err
	switch {
	case err != nil:
		a.complain(time.Now())
	case n > 0 && a.reported:
		a.log.Info("audit lines are written again", "file", a.config.File, "dropped", a.lost)
		a.reported, a.lost = false, 0
	}
	if len(lines) == 0 && time.Since(a.notedAt) >= auditNoted {
		a.note()
	}
	return lines
}

// note writes the number and the hash of the last line to the log, without waiting for it. Only the
// goroutine calls it.
func (a *Audit) note() {
	if a.last == a.noted {
		return
	}
	a.noted, a.notedAt = a.last, time.Now()
	last := a.last.String()
	a.tasks.Go(func() { a.log.Info("audit", "file", a.config.File, "last", last) })
}

// ready opens the file again if its name refers to another file now.
func (a *Audit) ready() error {
	if a.config.File == config.AuditStderr {
		return nil
	}
	a.mu.Lock()
	moved := a.moved
	a.moved = false
	a.mu.Unlock()
	if a.out != nil && !moved {
		if now, err := os.Stat(a.config.File); err == nil && os.SameFile(now, a.info) {
			return nil
		}
	}
	return a.open()
}

// open opens the file, and closes the previous one on success.
func (a *Audit) open() error {
	const create = os.O_APPEND | os.O_CREATE | os.O_WRONLY
	if info, err := os.Stat(a.config.File); err == nil && !info.Mode().IsRegular() &&
		info.Mode()&fs.ModeCharDevice == 0 {
		return errors.New("it is no regular file") // opening a pipe blocks until it has a reader
	}
	f, err := os.OpenFile(a.config.File, create, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case a.info != nil && os.SameFile(info, a.info): // the open one has the lock
		return f.Close()
	case info.Mode().IsRegular() && files.TryLock(f) != nil:
		err = ErrShared
	}
	if err != nil {
		f.Close()
		return err
	}
	if old, ok := a.out.(*os.File); ok {
		old.Close()
	}
	a.out, a.info, a.torn = f, info, endsInLine(a.config.File, info)
	return nil
}

// ErrShared means that another process writes the file. The lines of two processes would make one chain,
// which would look as if lines had been added.
var ErrShared = errors.New("another process writes this file; give each process its own file, with several " +
	"replicas by {replica} in the name")

// endsInLine reports whether a file ends in the middle of a line.
func endsInLine(name string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var end [1]byte
	_, err = f.ReadAt(end[:], info.Size()-1)
	return err == nil && end[0] != '\n'
}

// complain logs a failure at most once per auditCalm; a.mu is held. The log may block like the
// file, so that only Close waits for it.
func (a *Audit) complain(now time.Time) {
	if !a.complained.IsZero() && now.Sub(a.complained) < auditCalm {
		return
	}
	a.complained, a.reported = now, true
	text, lost, err := "audit lines wait in memory: they cannot be written", a.lost, a.failure
	if lost > 0 {
		text = "audit lines are lost: more of them come than can be written"
	}
	if err == nil {
		err = errors.New("the last write takes too long")
	}
	a.tasks.Go(func() { a.log.Error(text, "file", a.config.File, "dropped", lost, "error", err) })
}

// appendDropped appends the line that reports n dropped lines.
func appendDropped(b []byte, now time.Time, n int) []byte {
	b = strconv.AppendInt(append(appendTime(b, now), `,"dropped":`...), int64(n), 10)
	return append(b, "}\n"...)
}

// appendTime appends the beginning of a line.
func appendTime(b []byte, now time.Time) []byte {
	return append(now.UTC().AppendFormat(append(b, `{"time":"`...), "2006-01-02T15:04:05.000000Z"), '"')
}

// appendCall appends the line of a call and leaves out empty texts. encoding/json would take two
// and a half times as long, and allocate.
func appendCall(b []byte, now time.Time, c *proxy.CallInfo, digest *[sha256.Size]byte, arguments bool) []byte {
	b = appendTime(b, now)
	text := func(name, value string) {
		if value != "" {
			b = raw.AppendQuote(append(append(append(b, `,"`...), name...), `":`...), value)
		}
	}
	number := func(name string, value int64) {
		b = strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), value, 10)
	}
	text("request_id", c.RequestID)
	if c.TraceID != [16]byte{} {
		b = append(hex.AppendEncode(append(b, `,"trace_id":"`...), c.TraceID[:]), '"')
	}
	text("principal", c.Principal)
	text("key_id", c.KeyID)
	text("person", c.Person[:min(len(c.Person), auditText)])
	text("email", c.Email[:min(len(c.Email), auditText)])
	text("kind", c.Kind)
	text("claimed_client", c.Client[:min(len(c.Client), auditText)])
	text("session", c.Session)
	text("request", c.Request[:min(len(c.Request), auditText)])
	if c.Address.IsValid() {
		b = append(c.Address.AppendTo(append(b, `,"address":"`...)), '"')
	}
	text("era", c.Era)
	text("endpoint", c.Endpoint)
	text("surface", c.Surface)
	text("upstream", c.Upstream)
	text("method", c.Method)
	text("name", c.Name)
	text("own_name", c.Own)
	text("folder", c.Folder)
	for i, name := range c.Forwarded {
		begin := ","
		if i == 0 {
			begin = `,"forwarded":[`
		}
		b = raw.AppendQuote(append(b, begin...), name)
	}
	if len(c.Forwarded) > 0 {
		b = append(b, ']')
	}
	text("verdict", c.Verdict)
	text("approval", c.Approval)
	text("policy", c.Policy)
	text("rule", c.Rule)
	text("missing", c.Missing)
	if c.Arguments != nil {
		b = append(hex.AppendEncode(append(b, `,"arguments_sha256":"`...), digest[:]), '"')
	}
	text("outcome", string(c.Outcome))
	if c.Cached {
		b = append(b, `,"cached":true`...)
	}
	text("error", unreached(c))
	if c.Code != 0 {
		number("code", c.Code)
	}
	b = strconv.AppendFloat(append(b, `,"duration_ms":`...), float64(c.Took.Microseconds())/1000, 'f', -1, 64)
	number("sent", int64(c.Sent))
	number("received", int64(c.Received))
	if arguments && c.Arguments != nil {
		b = append(b, `,"arguments":`...)
		if utf8.Valid(c.Arguments) {
			b = raw.AppendLine(b, c.Arguments)
		} else {
			b = raw.AppendLine(b, bytes.ToValidUTF8(c.Arguments, []byte("\ufffd")))
		}
	}
	return append(b, "}\n"...)
}

// unreached returns why the upstream of a call was not reached, or has not answered, in the words that the client got;
// "" for other calls.
func unreached(c *proxy.CallInfo) string {
	if err, ok := errors.AsType[*upstream.Error](c.Err); ok && c.Outcome.Row().Unreached {
		text := strings.Join(strings.Fields(err.Public()), " ")
		return text[:min(len(text), auditText)]
	}
	return ""
}

// Sink is a second receiver of the audit's lines.
type Sink interface {
	// Add gets whole lines, each with its number in the chain. It copies them, and does not block.
	Add(lines []byte)
}
