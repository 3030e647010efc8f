package transport

import (
	"fmt"
	"io"
	"time"
)

// This file reads the bodies of responses.

// drain reads the rest of a response, so that the connection can be reused, and closes the trip. It
// does not block: the end of a stream often arrives in a later packet. close waits for the
// draining. The caller must have called begin.
func (o *origin) drain(t *trip) {
	if 0 < t.ContentLength && t.ContentLength <= 4<<10 {
		// this body arrived with its header; after an error the connection is not reused
		io.CopyN(io.Discard, t, t.ContentLength)
	}
	t.detach()
	if t.over || o.draining.Load() >= maxDraining {
		t.close()
		return
	}
	o.draining.Add(1)
	o.work.Go(func() {
		defer o.draining.Add(-1)
		late := time.AfterFunc(drainTime, t.breakOff)
		io.CopyN(io.Discard, t, drainSize) // after an error the connection is not reused
		late.Stop()
		t.close()
	})
}

func (o *origin) tooLarge() error { return TooLarge(o.limit) }

// TooLarge returns the error for a response of more than limit bytes, for every transport.
func TooLarge(limit int) error {
	return fmt.Errorf("%w: %w of %s; raise limits.message, or request less", ErrInvalid, errTooLarge,
		FormatSize(int64(limit)))
}

// FormatSize returns the size in the largest unit that divides it.
func FormatSize(s int64) string {
	switch {
	case s >= 1<<30 && s%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", s>>30)
	case s >= 1<<20 && s%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", s>>20)
	case s >= 1<<10 && s%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", s>>10)
	}
	return fmt.Sprintf("%d bytes", s)
}

// body reads the whole body of a response into the buffer, which grows. Without a buffer, it
// allocates one with the size of Content-Length, if known. An error may come with the text read so
// far.
func (o *origin) body(t *trip, buffer *[]byte) (text []byte, err error) {
	if buffer != nil {
		defer func() { *buffer = text }()
	}
	known, most := t.ContentLength, t.ContentLength
	if known > int64(o.limit) {
		return nil, errTooLarge
	}
	if known > Uncharged {
		if err := t.reserve(known); err != nil {
			return nil, err
		}
	}
	size := min(known, exactSize)
	if known < 0 {
		size, most = 1<<10, int64(o.limit)+1
	}
	var b []byte
	if buffer != nil && int64(cap(*buffer)) >= size {
		b = (*buffer)[:0]
	} else {
		b = make([]byte, 0, size)
	}
	for {
		if len(b) > o.limit {
			return b[:o.limit], errTooLarge
		}
		if len(b) == cap(b) && int64(len(b)) != known {
			size := max(int64(len(b))+1, min(2*int64(cap(b)), most))
			if known < 0 && size > Uncharged {
				if err := t.reserve(size - int64(cap(b))); err != nil {
					return b, err
				}
			}
			grown := make([]byte, len(b), size)
			b = grown[:copy(grown, b)]
		}
		into := b[len(b):cap(b)]
		if len(into) == 0 {
			// only the end of the body is missing: it has the announced length
			into = make([]byte, 1)
		}
		n, err := t.Read(into)
		if len(b)+n <= cap(b) {
			b = b[:len(b)+n]
		}
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}
