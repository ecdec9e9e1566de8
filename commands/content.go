package commands

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Limits of a link's content and of a request. The OpenAPI description states them too.
const (
	MaxTitle      = 1024 // characters
	MaxTags       = 50
	MaxTag        = 100 // characters
	MaxReason     = 1000
	MaxCacheTTL   = 365 * 24 * 3600 // seconds
	MaxOwner      = 255             // characters
	MaxRequestKey = 255             // bytes, without the row number of a batch

	MinCodeLength     = 5
	MinRandomLength   = 8
	MaxCodeLength     = events.MaxCodeLength
	DefaultCodeLength = 7

	// Times lie within the years 1 to 9999, which RFC 3339 can write. Microseconds since 1970.
	minTimeUS = -62135596800 * 1_000_000
	maxTimeUS = 253402300800*1_000_000 - 1
)

// Names of the content fields that an update may change, as requests and history show them.
const (
	FieldTarget         = "target"
	FieldTitle          = "title"
	FieldTags           = "tags"
	FieldRedirectStatus = "redirect_status"
	FieldQuery          = "query"
	FieldCacheTTL       = "cache_ttl"
	FieldNotBefore      = "not_before"
	FieldExpiresAt      = "expires_at"
	FieldExpiredURL     = "expired_url"
)

type contentField struct {
	name string
	same func(a, b *pb.LinkContent) bool
	take func(to, from *pb.LinkContent)
}

// contentFields lists the fields in the order in which history shows them, each with how to compare and to take it over.
var contentFields = []contentField{
	{FieldTarget, func(a, b *pb.LinkContent) bool { return a.GetTarget() == b.GetTarget() },
		func(to, from *pb.LinkContent) { to.Target = from.GetTarget() }},
	{FieldTitle, func(a, b *pb.LinkContent) bool { return a.GetTitle() == b.GetTitle() },
		func(to, from *pb.LinkContent) { to.Title = from.GetTitle() }},
	{FieldTags, func(a, b *pb.LinkContent) bool { return slices.Equal(a.GetTags(), b.GetTags()) },
		func(to, from *pb.LinkContent) { to.Tags = from.GetTags() }},
	{FieldRedirectStatus, func(a, b *pb.LinkContent) bool { return a.GetRedirectStatus() == b.GetRedirectStatus() },
		func(to, from *pb.LinkContent) { to.RedirectStatus = from.GetRedirectStatus() }},
	{FieldQuery, func(a, b *pb.LinkContent) bool { return a.GetQuery() == b.GetQuery() },
		func(to, from *pb.LinkContent) { to.Query = from.GetQuery() }},
	{FieldCacheTTL, func(a, b *pb.LinkContent) bool { return a.GetCacheTtl() == b.GetCacheTtl() },
		func(to, from *pb.LinkContent) { to.CacheTtl = from.GetCacheTtl() }},
	{FieldNotBefore, func(a, b *pb.LinkContent) bool { return a.GetNotBeforeUs() == b.GetNotBeforeUs() },
		func(to, from *pb.LinkContent) { to.NotBeforeUs = from.GetNotBeforeUs() }},
	{FieldExpiresAt, func(a, b *pb.LinkContent) bool { return a.GetExpiresUs() == b.GetExpiresUs() },
		func(to, from *pb.LinkContent) { to.ExpiresUs = from.GetExpiresUs() }},
	{FieldExpiredURL, func(a, b *pb.LinkContent) bool { return a.GetExpiredUrl() == b.GetExpiredUrl() },
		func(to, from *pb.LinkContent) { to.ExpiredUrl = from.GetExpiredUrl() }},
}

// ChangedFields returns the names of the fields in which two contents differ, in a fixed order.
func ChangedFields(a, b *pb.LinkContent) (names []string) {
	for _, f := range contentFields {
		if !f.same(a, b) {
			names = append(names, f.name)
		}
	}
	return names
}

// merged returns old with the named fields of update.
func merged(old, update *pb.LinkContent, fields []string) (*pb.LinkContent, *Refusal) {
	next := &pb.LinkContent{}
	for _, f := range contentFields {
		f.take(next, old)
	}
	for _, name := range fields {
		i := slices.IndexFunc(contentFields, func(f contentField) bool { return f.name == name })
		if i < 0 {
			return nil, Refuse(CodeInvalidRequest, "", fmt.Sprintf("%.40q is not a field that an update can change", name))
		}
		contentFields[i].take(next, update)
	}
	return next, nil
}

// CheckContent checks every field of a link's content. The target must be normalised already (NormalizeTarget).
func CheckContent(c *pb.LinkContent) *Refusal {
	if target, err := NormalizeTarget(c.GetTarget()); err != nil {
		return asRefusal(err, CodeInvalidTarget, FieldTarget)
	} else if target != c.GetTarget() {
		return Refuse(CodeInvalidTarget, FieldTarget, "the target is not in its normal form")
	}
	if c.GetExpiredUrl() != "" {
		if normal, err := NormalizeURL(FieldExpiredURL, c.GetExpiredUrl()); err != nil {
			return asRefusal(err, CodeInvalidTarget, FieldExpiredURL)
		} else if normal != c.GetExpiredUrl() {
			return Refuse(CodeInvalidTarget, FieldExpiredURL, "expired_url is not in its normal form")
		}
	}
	if r := checkText(FieldTitle, c.GetTitle(), MaxTitle); r != nil {
		return r
	}
	if r := checkTags(c.GetTags()); r != nil {
		return r
	}
	switch c.GetRedirectStatus() {
	case 0, 301, 302, 307, 308:
	default:
		return Refuse(CodeInvalidRequest, FieldRedirectStatus, "redirect_status is one of 301, 302, 307 and 308")
	}
	if _, ok := pb.QueryPolicy_name[int32(c.GetQuery())]; !ok {
		return Refuse(CodeInvalidRequest, FieldQuery, "query is one of keep, override, append, drop and reject")
	}
	if c.GetCacheTtl() > MaxCacheTTL {
		return Refuse(CodeInvalidRequest, FieldCacheTTL, fmt.Sprintf("cache_ttl is at most %d seconds", MaxCacheTTL))
	}
	return checkTimes(c)
}

func checkTimes(c *pb.LinkContent) *Refusal {
	for _, t := range []struct {
		field string
		us    int64
	}{{FieldNotBefore, c.GetNotBeforeUs()}, {FieldExpiresAt, c.GetExpiresUs()}} {
		if t.us < minTimeUS || t.us > maxTimeUS {
			return Refuse(CodeInvalidRequest, t.field, t.field+" lies outside the years 1 to 9999")
		}
	}
	if c.GetNotBeforeUs() != 0 && c.GetExpiresUs() != 0 && c.GetExpiresUs() <= c.GetNotBeforeUs() {
		return Refuse(CodeInvalidRequest, FieldExpiresAt, "expires_at must be after not_before")
	}
	return nil
}

func checkTags(tags []string) *Refusal {
	if len(tags) > MaxTags {
		return Refuse(CodeInvalidRequest, FieldTags, fmt.Sprintf("a link has at most %d tags", MaxTags))
	}
	for i, tag := range tags {
		if tag == "" {
			return Refuse(CodeInvalidRequest, FieldTags, "a tag is empty")
		}
		if r := checkText(FieldTags, tag, MaxTag); r != nil {
			return r
		}
		if slices.Contains(tags[:i], tag) {
			return Refuse(CodeInvalidRequest, FieldTags, fmt.Sprintf("tag %q stands there twice", tag))
		}
	}
	return nil
}

// CheckReason checks the reason of a change.
func CheckReason(reason string) *Refusal { return checkText("reason", reason, MaxReason) }

// checkText accepts valid UTF-8 without control characters, at most limit characters.
func checkText(field, text string, limit int) *Refusal {
	if !utf8.ValidString(text) {
		return Refuse(CodeInvalidRequest, field, field+" is not valid UTF-8")
	}
	if utf8.RuneCountInString(text) > limit {
		return Refuse(CodeInvalidRequest, field, fmt.Sprintf("%s is longer than %d characters", field, limit))
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return Refuse(CodeInvalidRequest, field, field+" contains a control character")
		}
	}
	return nil
}
