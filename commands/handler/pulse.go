package handler

import (
	"context"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// PulseEvery is the pause between two pulses.
const PulseEvery = time.Second

// pulseWithin bounds the sending of one pulse; what takes longer is not worth telling.
const pulseWithin = 2 * time.Second

// Pulse tells readers of the control stream once a second how far it has come, while this process writes it, until ctx is done.
// Run must be under way.
func (h *Handler) Pulse(ctx context.Context) error {
	writer := h.workers[len(h.workers)-1]
	var session *eventlog.Appender
	defer func() {
		if session != nil {
			session.Close()
		}
	}()
	for ctx.Err() == nil {
		began := time.Now()
		if mode := writer.mode.Load(); mode != nil && *mode == ModeWriting {
			if err := h.beat(ctx, &session); err != nil && ctx.Err() == nil {
				h.cfg.Logger.Debug("no pulse was sent", "error", err)
			}
		}
		wait(ctx, PulseEvery-time.Since(began))
	}
	return nil
}

// beat sends one pulse. What the control stream has acknowledged by now is folded first, so that the position covers it.
func (h *Handler) beat(ctx context.Context, session **eventlog.Appender) error {
	ctx, cancel := context.WithTimeout(ctx, pulseWithin)
	defer cancel()
	if err := h.control.WaitEnd(ctx); err != nil {
		return fmt.Errorf("reading the control log to its end: %w", err)
	}
	pulse := &pb.Pulse{SchemaVersion: events.SchemaVersion, TimeUs: h.cfg.Now().UnixMicro()}
	if state := h.control.State(); state != nil {
		pulse.ControlSeq = state.Seq
	}
	value, err := pulse.MarshalVT()
	if err != nil {
		return fmt.Errorf("encoding a pulse: %w", err)
	}
	if *session == nil {
		if *session, err = h.cfg.Log.NewAppender(eventlog.Pulse); err != nil {
			return fmt.Errorf("opening producer session: %w", err)
		}
	}
	if err := (*session).Append(ctx, 0, []eventlog.Record{{Value: value}}, eventlog.AnyOffset); err != nil {
		(*session).Close()
		*session = nil
		return fmt.Errorf("sending a pulse: %w", err)
	}
	return nil
}
