package readmodels

import (
	"slices"
	"strings"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Change is one field of a link that an event changed. From and To are as JSON shows them: strings, numbers, lists of
// strings, or nil for none.
type Change struct {
	Field    string
	From, To any
}

// Names of the fields that only status events change.
const (
	FieldDisabled = "disabled"
	FieldBanned   = "banned"
	FieldDeleted  = "deleted"
)

// Changes compares a link's record before and after an event; before is nil when the event created the link. Fields come in
// a fixed order.
func Changes(before, after *pb.Link) []Change {
	var out []Change
	was, is := shown(before), shown(after)
	for i, to := range is {
		if from := was[i]; !same(from.value, to.value) {
			out = append(out, Change{to.name, from.value, to.value})
		}
	}
	return out
}

type shownField struct {
	name  string
	value any
}

func shown(link *pb.Link) []shownField {
	c := link.GetContent()
	fields := []shownField{
		{commands.FieldTarget, text(c.GetTarget())},
		{commands.FieldTitle, text(c.GetTitle())},
		{commands.FieldTags, list(c.GetTags())},
		{commands.FieldRedirectStatus, nil},
		{commands.FieldQuery, nil},
		{commands.FieldCacheTTL, nil},
		{commands.FieldNotBefore, moment(c.GetNotBeforeUs())},
		{commands.FieldExpiresAt, moment(c.GetExpiresUs())},
		{commands.FieldExpiredURL, text(c.GetExpiredUrl())},
		{FieldDisabled, link.GetDisabled()},
		{FieldBanned, link.GetBanned()},
		{FieldDeleted, link.GetDeleted()},
	}
	if link != nil {
		fields[3].value = RedirectStatus(c.GetRedirectStatus())
		fields[4].value = QueryName(c.GetQuery())
		fields[5].value = c.GetCacheTtl()
	}
	return fields
}

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func list(tags []string) any {
	if len(tags) == 0 {
		return nil
	}
	return tags
}

func moment(us int64) any {
	if us == 0 {
		return nil
	}
	return Time(us)
}

func same(a, b any) bool {
	la, isA := a.([]string)
	lb, isB := b.([]string)
	if isA || isB {
		return isA == isB && slices.Equal(la, lb)
	}
	return a == b
}

// Time formats microseconds since 1970 as RFC 3339 in UTC.
func Time(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339Nano) }

// QueryName returns the name under which the API knows a query policy, e.g. "keep".
func QueryName(p pb.QueryPolicy) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "QUERY_"))
}
