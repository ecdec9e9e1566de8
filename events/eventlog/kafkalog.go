package eventlog

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLogger passes the Kafka client's warnings on, and the rest when debugging.
type clientLogger struct{ to *slog.Logger }

func (l clientLogger) Level() kgo.LogLevel {
	if l.to.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
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
