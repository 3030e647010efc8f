package front

import (
	"context"
	"net/http"
	"time"

	"junction/proxy/streams"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
)

// This file writes the streams of notifications. The core decides what they get.

// Listen implements Front for a subscriptions/listen of a modern client.
func (x *request) Listen(ctx context.Context, l *streams.Listener) {
	x.reply.finish()
	x.server.listen(ctx, x, l, jsonrpc.AppendEvent(nil, "", l.First))
}

// listen keeps the stream open until ctx ends, the client deletes its session, or Junction shuts
// down. The stream must have its share of limits.streams. first is written first.
func (s *Server) listen(ctx context.Context, x *request, l *streams.Listener, first []byte) {
	ctx, end := x.UntilExpiry(ctx)
	defer end()
	defer s.Streams().Join(l, end)()
	clearReadDeadline(x.reply.w)
	beginStream(x.reply.w)
	if !x.reply.flush(first) {
		return
	}
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		var event []byte
		select {
		case <-ctx.Done():
			return
		case <-s.Ending().Done():
			if l.Last != nil {
				x.reply.flush(jsonrpc.AppendEvent(nil, "", l.Last))
			}
			return
		case <-l.Changed:
			if s.members != nil && l.Session == nil && !pace.Sleep(ctx, spread, nil) {
				return
			}
			for _, message := range s.Streams().Drain(l) {
				event = jsonrpc.AppendEvent(event, "", message)
			}
			if len(event) == 0 {
				continue
			}
		case <-alive.C:
			event = []byte(":\n\n")
		}
		if !x.reply.flush(event) {
			return
		}
	}
}

// spread is the time for which members wait before they notify modern clients of a change, because
// the client's next list may come from a member that adopts the change a moment later.
const spread = 200 * time.Millisecond

// quiet is the time without events after which a comment shows that the stream is alive.
const quiet = 15 * time.Second

// beginStream writes the header of an event stream, and tells proxies not to buffer it.
func beginStream(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}
