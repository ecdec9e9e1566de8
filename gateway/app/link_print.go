package app

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/hoplog/hoplog/gateway/client"
)

// printAs prints what the server's types hold with a printer of the client's: one description generates both.
func printAs[T any](w io.Writer, v any, printer func(io.Writer, *T) error) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	shown := new(T)
	if err := json.Unmarshal(raw, shown); err != nil {
		return err
	}
	return printer(w, shown)
}

// printable makes text that others wrote harmless for a terminal and a table: without control characters and without those
// that turn the direction of writing.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func printLink(w io.Writer, l *client.Link) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, printable(value)) }
	row("short URL", l.ShortUrl)
	row("target", l.Target)
	row("status", string(l.Status))
	row("version", fmt.Sprint(l.Version))
	if l.Title != "" {
		row("title", l.Title)
	}
	if len(l.Tags) > 0 {
		row("tags", strings.Join(l.Tags, ", "))
	}
	row("redirect", fmt.Sprintf("%d, query: %s, cache: %d s", l.RedirectStatus, l.Query, l.CacheTtl))
	if l.NotBefore != nil {
		row("not before", moment{time: *l.NotBefore}.String())
	}
	if l.ExpiresAt != nil {
		row("expires", moment{time: *l.ExpiresAt}.String())
	}
	if l.ExpiredUrl != nil {
		row("afterwards", *l.ExpiredUrl)
	}
	row("owner", l.Owner)
	row("created", moment{time: l.CreatedAt}.String())
	row("updated", moment{time: l.UpdatedAt}.String())
	return t.Flush()
}

// maxCell is how many characters of a text a table of links shows.
const maxCell = 60

func printLinks(w io.Writer, page *client.LinkPage) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "LINK\tSTATUS\tVERSION\tCREATED\tTARGET\tTITLE")
	for i := range page.Links {
		l := &page.Links[i]
		fmt.Fprintf(t, "%s/%s\t%s\t%d\t%s\t%s\t%s\n", printable(l.Domain), printable(l.Code), l.Status, l.Version, l.CreatedAt.UTC().Format(time.DateTime), cell(l.Target), cell(l.Title))
	}
	if err := t.Flush(); err != nil || page.NextCursor == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: --cursor %s\n", *page.NextCursor)
	return err
}

func cell(text string) string {
	runes := []rune(printable(text))
	if len(runes) > maxCell {
		return string(runes[:maxCell-1]) + "…"
	}
	return string(runes)
}

func printHistory(w io.Writer, h *client.History) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.StripEscape)
	for i := range h.Events {
		e := &h.Events[i]
		fmt.Fprintf(t, "%d\t%s\t%s\tby %s\tat %s\t%.12s\n", e.Version, e.Time.UTC().Format(time.RFC3339Nano), e.Type, printable(e.Actor), e.Position, e.Hash)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range h.Events {
		if err := printChanges(w, &h.Events[i]); err != nil {
			return err
		}
	}
	return nil
}

func printChanges(w io.Writer, e *client.HistoryEvent) error {
	_, err := fmt.Fprintf(w, "\nversion %d\n", e.Version)
	if e.Reason != "" {
		_, err = fmt.Fprintf(w, "  reason: %s\n", printable(e.Reason))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Changes)) {
		if err != nil {
			break
		}
		change := e.Changes[name]
		_, err = fmt.Fprintf(w, "  %s: %s → %s\n", printable(name), shownValue(change.From), shownValue(change.To))
	}
	return err
}

// shownValue prints a field's value as JSON has it.
func shownValue(value any) string {
	if value == nil {
		return "none"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "?"
	}
	return printable(strings.TrimSuffix(b.String(), "\n"))
}
