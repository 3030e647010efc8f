package upstreamtest

import (
	"slices"

	"junction/upstream/raw"
)

// levels are the levels of the log, the most talkative first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func (c *call) setLevel() {
	level := c.param("level")
	if !slices.Contains(levels, level) {
		c.fail(200, -32602, "Invalid level: "+level, nil)
		return
	}
	c.se.mu.Lock()
	c.se.level = level
	c.se.mu.Unlock()
	c.result("")
}

// logs reports whether the client wants to hear of the level: in the modern era what the request
// says, in the legacy one what the session does; a session that has said nothing hears everything.
func (c *call) logs(level string) bool {
	least := c.param("_meta", keyLogLevel)
	if !c.modern {
		c.se.mu.Lock()
		least = c.se.level
		c.se.mu.Unlock()
		if least == "" {
			return true
		}
	}
	at := slices.Index(levels, least)
	return at >= 0 && slices.Index(levels, level) >= at
}

// log sends a message of each level that the client wants to hear of, and all of them if always is
// set, and then answers.
func (c *call) log(a arguments) {
	if a.Levels == nil {
		a.Levels = []string{"info"}
	}
	for i, level := range a.Levels {
		if !a.Always && !c.logs(level) {
			continue
		}
		params := raw.AppendQuote([]byte(`{"level":`), level)
		params = append(append(append(params, `,"logger":`...), raw.Quote(a.Logger)...), `,"data":`...)
		if a.Params != nil {
			params = append(params, a.Params...)
		} else {
			params = append(params, '0'+byte(i%10))
		}
		c.outOn(a.On).notify("notifications/message", append(params, '}'))
	}
	c.text("logged")
}
