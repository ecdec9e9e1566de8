package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

func newAudit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit LINK",
		Short: "Show a link's history, with who changed what, straight from the log",
		Long: "Show a link's history, with who changed what and where it stands in the log, straight from the log and not from a read model.\n" +
			"LINK is DOMAIN/CODE, CODE on the default domain, or a short URL.",
		Args: exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return withReader(c, args, auditLink) },
	}
	verify := &cobra.Command{
		Use:   "verify",
		Short: "Check the whole log: every hash chain, and all that no honest writer writes",
		Args:  exactArgs(0),
		RunE:  func(c *cobra.Command, _ []string) error { return withReader(c, nil, auditVerify) },
	}
	c.AddCommand(withFlags(verify, kafkaFlags, jsonFlag))
	return withFlags(c, kafkaFlags, jsonFlag)
}

// reading is a command that answers from the log, at work.
type reading struct {
	*logReader
	settings
	link linkName // what the command was asked about, if it was
	out  io.Writer
	told *progress
	// logger is told what an operator must hear besides the answer.
	logger *slog.Logger
}

// withReader runs f with an open log. The link that args name, if any, is found on it.
func withReader(c *cobra.Command, args []string, f func(ctx context.Context, r *reading) error) error {
	s, err := load(c)
	if err != nil {
		return err
	}
	r := &reading{settings: s, out: c.OutOrStdout(), told: newProgress(c.ErrOrStderr()),
		logger: slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if len(args) > 0 {
		if r.link, err = parseLink(args[0]); err != nil {
			return err
		}
	}
	if r.logReader, err = openReader(c.Context(), s); err != nil {
		return err
	}
	defer r.Close()
	if len(args) > 0 {
		if r.link, err = r.find(c.Context(), r.link); err != nil {
			return err
		}
	}
	if err = f(c.Context(), r); err != nil && c.Context().Err() != nil {
		return errInterrupted
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// linkHistory reads a link's history. see is shown every envelope of the link's bucket.
func (r *reading) linkHistory(ctx context.Context, see func(*events.Envelope)) (entries []*pb.HistoryEntry, err error) {
	err = r.bucket(ctx, events.BucketOf(r.link.domain, r.link.code), r.told, func(e *events.Envelope) error {
		see(e)
		for _, event := range e.GetEvents() {
			if ref := events.LinkOf(event); ref.GetNamespace() == r.link.domain && ref.GetCode() == r.link.code {
				entries = append(entries, projections.HistoryEntry(e, event))
			}
		}
		return nil
	})
	return entries, err
}

func auditLink(ctx context.Context, r *reading) error {
	entries, err := r.linkHistory(ctx, func(*events.Envelope) {})
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("the log has no link %s", r.link)
	}
	history := gateway.History{Domain: r.link.domain, Code: r.link.code, Events: gateway.ShowHistory(entries)}
	if r.GetBool("json") {
		return printJSON(r.out, history)
	}
	return printAs(r.out, history, printHistory)
}

func auditVerify(ctx context.Context, r *reading) error {
	v, err := r.verify(ctx)
	if err != nil {
		return err
	}
	if r.GetBool("json") {
		err = printJSON(r.out, v)
	} else {
		err = printVerification(r.out, v)
	}
	if err == nil && len(v.Problems) > 0 {
		return errSilent
	}
	return err
}

// span is what one topic held of a partition when the command started.
type span struct{ starts, ends []int64 }

func (r *logReader) span(ctx context.Context, topic string) (s span, err error) {
	if s.ends, err = r.Ends(ctx, topic); err != nil {
		return s, err
	}
	s.starts, err = r.Starts(ctx, topic)
	return s, err
}

// stream is one stream's topics, with what they held when the command started.
type stream struct {
	events, commands     string
	envelopes, questions span
}

func (r *logReader) stream(ctx context.Context, events, commands string) (s stream, err error) {
	s = stream{events: events, commands: commands}
	if s.envelopes, err = r.span(ctx, events); err != nil {
		return s, err
	}
	s.questions, err = r.span(ctx, commands)
	if err == nil && len(s.envelopes.ends) != len(s.questions.ends) {
		err = fmt.Errorf("%s has %d partitions, %s %d", events, len(s.envelopes.ends), commands, len(s.questions.ends))
	}
	return s, err
}

// records is how many the stream's topics hold.
func (s *stream) records() (count int64) {
	for _, held := range []span{s.envelopes, s.questions} {
		for p := range held.ends {
			count += held.ends[p] - held.starts[p]
		}
	}
	return count
}

// verify freezes the ends and reads everything before them. An envelope answers a command and names a control position
// that were there before it, so the ends of links are asked for first.
func (r *reading) verify(ctx context.Context) (*projections.Verification, error) {
	links, err := r.stream(ctx, eventlog.EventsLink, eventlog.CommandsLink)
	if err != nil {
		return nil, err
	}
	control, err := r.stream(ctx, eventlog.EventsControl, eventlog.CommandsControl)
	if err != nil {
		return nil, err
	}
	if len(links.envelopes.ends) != r.partitions || len(control.envelopes.ends) != 1 {
		return nil, fmt.Errorf("the topics of links have %d partitions, those of control %d", len(links.envelopes.ends), len(control.envelopes.ends))
	}
	r.told.begin("verifying", links.records()+control.records())
	defer r.told.end()
	v := projections.NewVerification()
	if err := r.verifyPartition(ctx, v.Control(eventlog.EventsControl), &control, 0); err != nil {
		return nil, err
	}
	for p := range int32(r.partitions) {
		if err := r.verifyPartition(ctx, v.Partition(eventlog.EventsLink, p, r.partitions), &links, p); err != nil {
			return nil, err
		}
	}
	v.Finish()
	return v, nil
}

// verifyPartition reads the envelopes, and then the commands that they answer.
func (r *reading) verifyPartition(ctx context.Context, v *projections.Verifier, s *stream, p int32) error {
	v.Commands(s.commands, s.questions.starts[p], s.questions.ends[p])
	err := r.records(ctx, s.events, p, s.envelopes.starts[p], s.envelopes.ends[p], func(rec *eventlog.Record) error {
		r.told.step()
		v.Add(rec.Offset, rec.Key, rec.Value)
		return nil
	})
	if err != nil {
		return err
	}
	err = r.records(ctx, s.commands, p, s.questions.starts[p], s.questions.ends[p], func(rec *eventlog.Record) error {
		r.told.step()
		v.Command(rec.Offset, rec.Value)
		return nil
	})
	if err != nil {
		return err
	}
	v.End(s.envelopes.ends[p], s.questions.ends[p])
	return nil
}

func printVerification(w io.Writer, v *projections.Verification) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "envelopes\t%d\t(%d void)\nbuckets\t%d\nlinks\t%d\nproblems\t%d\n", v.Envelopes, v.Void, v.Buckets, v.Links, len(v.Problems))
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range v.Problems {
		at := ""
		if p.Topic != "" {
			at = fmt.Sprintf(" %s partition %d offset %d", p.Topic, p.Partition, p.Offset)
		}
		if p.Bucket != nil {
			at += fmt.Sprintf(" bucket %d seq %d", *p.Bucket, p.Seq)
		}
		if _, err := fmt.Fprintf(w, "%s%s: %s\n", p.Kind, at, printable(p.Detail)); err != nil {
			return err
		}
	}
	return nil
}
