package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLogger passes the warnings of a Log's clients on, and the rest when debugging. While brokers are away each client says
// so twenty times a second: a warning in the same words passes once in repeatAfter, with how often it was said meanwhile.
// Errors always pass.
type clientLogger struct {
	to   *slog.Logger
	mu   sync.Mutex
	said map[string]*saying // by message: the client has few of them
}

type saying struct {
	last time.Time
	held int
}

const repeatAfter = 10 * time.Second

func newClientLogger(to *slog.Logger) *clientLogger {
	return &clientLogger{to: to, said: map[string]*saying{}}
}

// held reports whether a message was passed on a moment ago; else how often it was held back since.
func (l *clientLogger) held(msg string, now time.Time) (since int, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.said[msg]
	if s == nil {
		s = &saying{}
		l.said[msg] = s
	}
	if now.Sub(s.last) < repeatAfter {
		s.held++
		return 0, true
	}
	since, s.last, s.held = s.held, now, 0
	return since, false
}

func (l *clientLogger) Level() kgo.LogLevel {
	if l.to.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

func (l *clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level == kgo.LogLevelWarn && l.Level() == kgo.LogLevelWarn {
		since, held := l.held(msg, time.Now())
		if held {
			return
		}
		if since > 0 {
			keyvals = append(keyvals, "held_back", since)
		}
	}
	to := slog.LevelDebug
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelError
	case kgo.LogLevelWarn:
		to = slog.LevelWarn
	}
	l.to.With("from", "kafka client").Log(context.Background(), to, msg, keyvals...) //nolint:sloglint // the client words its own messages
}

// brokerLogger passes the embedded broker's warnings on.
type brokerLogger struct{ to *slog.Logger }

func (l brokerLogger) Logf(level kfake.LogLevel, msg string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.to.Error("embedded broker", "message", fmt.Sprintf(msg, args...))
	case kfake.LogLevelWarn:
		l.to.Warn("embedded broker", "message", fmt.Sprintf(msg, args...))
	}
}
