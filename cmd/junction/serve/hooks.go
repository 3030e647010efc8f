package serve

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/record"
	"junction/proxy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
)

// hooks returns hooks that log and audit each call and log each hidden item.
func (s *serving) hooks() proxy.Hooks {
	log, calls := s.log, record.CallLog(s.log)
	var limited record.Limited
	return proxy.Hooks{
		CallDone: func(c *proxy.CallInfo) {
			// Clients may put their key into these fields by mistake.
			for _, text := range [...]*string{&c.Client, &c.Request, &c.Method, &c.Name, &c.Own} {
				*text = auth.Redact(*text)
			}
			s.recording.audit.Call(c)
			if !c.OnlyAsked() {
				s.calls.Add(c)
			}
			lack, _ := errors.AsType[*upstream.LackError](c.Err)
			s.signIns.sources.Lacked(lack)
			level, more := callLevel(c), 0
			if c.Outcome == proxy.Limited {
				var due bool
				if more, due = limited.Line(c.Principal, time.Now()); due {
					level = slog.LevelInfo
				}
			}
			if !calls.Enabled(context.Background(), level) {
				return
			}
			var few [16]slog.Attr
			attrs := append(few[:0],
				slog.String("client", c.Client), slog.String("era", c.Era), slog.String("method", c.Method),
				slog.String("name", c.Name),
				slog.String("upstream", c.Upstream), slog.String("outcome", string(c.Outcome)),
				slog.Duration("took", c.Took),
				slog.Int("sent", c.Sent), slog.Int("received", c.Received),
			)
			if c.Folder != "" && calls.Enabled(context.Background(), slog.LevelDebug) {
				attrs = append(attrs, slog.String("folder", c.Folder))
			}
			if more > 0 {
				attrs = append(attrs, slog.Int("more", more))
			}
			if c.Cached {
				attrs = append(attrs, slog.Bool("cached", true))
			}
			if c.RequestID != "" {
				attrs = append(attrs, slog.String("request_id", c.RequestID))
			}
			if c.TraceID != [16]byte{} {
				attrs = append(attrs, slog.String("trace_id", hex.EncodeToString(c.TraceID[:])))
			}
			if c.Kind != string(auth.KindLocal) {
				attrs = append(attrs, slog.String("principal", c.Principal))
			}
			if c.KeyID != "" {
				attrs = append(attrs, slog.String("key_id", c.KeyID))
			}
			if c.Endpoint != "" {
				attrs = append(attrs, slog.String("endpoint", c.Endpoint))
			}
			if peer, ok := errors.AsType[*jsonrpc.Error](c.Err); ok {
				// the message is the upstream's and may repeat arguments
				attrs = append(attrs, slog.Int64("code", peer.Code))
			} else if c.Err != nil {
				attrs = append(attrs, slog.String("error", auth.Redact(c.Err.Error())))
			}
			calls.Log(time.Now(), level, "call", attrs)
		},
		Problems: func(list []view.Problem) {
			for _, p := range list {
				log.Warn("not offered: "+p.Reason, "upstream", p.Upstream, "name", p.Name, "endpoint", p.Endpoint)
			}
		},
	}
}

// callLevel returns the level of the line of a call.
func callLevel(c *proxy.CallInfo) slog.Level {
	switch {
	case c.Refused() && c.Outcome != proxy.Denied || c.OnlyAsked():
		return slog.LevelDebug // clients can cause any number of these
	case c.Outcome.Row().Doubtful:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
