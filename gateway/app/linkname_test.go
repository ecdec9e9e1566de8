package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
)

func TestParseLink(t *testing.T) {
	for text, want := range map[string]linkName{
		"s.example/abc":                   {"s.example", "abc"},
		"S.Example/aBc":                   {"s.example", "aBc"},
		"abc":                             {"", "abc"},
		"a.b":                             {"", "a.b"},
		"http":                            {"", "http"},
		"localhost:8081/abc":              {"localhost:8081", "abc"},
		"[::1]:8081/abc":                  {"[::1]:8081", "abc"},
		"https://s.example/abc":           {"s.example", "abc"},
		"HTTP://s.example:80/abc/":        {"s.example", "abc"},
		"https://s.example/abc?utm=1#top": {"s.example", "abc"},
		"s.example/abc/":                  {"s.example", "abc"},
		"https://bücher.example/%E4%B8%AD%E6%96%87": {"xn--bcher-kva.example", "中文"},
		"中文":         {"", "中文"},
		"a+b":        {"", "a+b"},
		"cafe\u0301": {"", "caf\u00e9"},
	} {
		if got, err := parseLink(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "s.example/", "/abc", "https://s.example", "https://s.example/", "https://", "https:///abc", "a/b/c", "s.example/a b", "bad host/abc",
		"s.example/%zz", "s.example/%2f", "s.example/" + strings.Repeat("a", 65), "a\x1bb", "user@host/abc", ".."} {
		var usage usageError
		if got, err := parseLink(text); !errors.As(err, &usage) {
			t.Errorf("%q: %+v, %v; wanted wrong use", text, got, err)
		}
	}
}

func TestParseMoment(t *testing.T) {
	at, err := parseMoment("2026-01-02T15:04:05.000001+01:00")
	if err != nil || at.String() != "2026-01-02T14:04:05.000001Z" {
		t.Errorf("%v, %v", at, err)
	}
	us := time.Date(2026, 1, 2, 14, 4, 5, 1000, time.UTC).UnixMicro()
	if !at.holds(us, 9) || at.holds(us+1, 1) {
		t.Error("a time holds what is stamped with it, and nothing later")
	}
	place, err := parseMoment("link/1731/42")
	if err != nil || place.position == nil || *place.position != (events.Position{Stream: events.StreamLink, Bucket: 1731, Seq: 42}) {
		t.Errorf("%v, %v", place, err)
	}
	if !place.holds(us, 42) || place.holds(0, 43) {
		t.Error("a position holds what is at it, and nothing behind it")
	}
	for _, text := range []string{"", "yesterday", "2026-01-02", "2026-01-02T15:04:05", "link/1", "link/5000/1", "control/0/1", "1767366245"} {
		var usage usageError
		if got, err := parseMoment(text); !errors.As(err, &usage) {
			t.Errorf("%q: %v, %v; wanted wrong use", text, got, err)
		}
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[31mb\nc\td\u202ee 中🙂"); got != "a\ufffd[31mb\ufffdc\ufffdd\ufffde 中🙂" {
		t.Errorf("%q", got)
	}
}

func TestFollowRebuild(t *testing.T) {
	const progressLine = `{"done":5,"total":10}` + "\n"
	report, err := followRebuild(strings.NewReader(progressLine+`{"done":0,"total":0,"report":{"Records":10,"Buckets":2,"Differing":[7],"Positions":[4,6]}}`), &progress{})
	if err != nil || report.Records != 10 || report.Buckets != 2 || len(report.Differing) != 1 || len(report.Positions) != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	var shown strings.Builder
	if err := report.print(&shown); err != nil || !strings.Contains(shown.String(), "[7]") {
		t.Errorf("%q, %v", shown.String(), err)
	}
	for answer, want := range map[string]string{
		progressLine + `{"error":"a rebuild is under way already"}`: "a rebuild is under way already",
		progressLine:                    errCut.Error(),
		progressLine + `{"done":5,`:     errCut.Error(),
		progressLine + `<html>`:         "reading the answer",
		`{"report":null,"error":"bad"}`: "bad",
	} {
		if report, err := followRebuild(strings.NewReader(answer), &progress{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", answer, report, err)
		}
	}
}
