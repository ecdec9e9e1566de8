package gateway

import (
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// draft is what all commands of one HTTP request have in common.
type draft struct {
	caller     *pb.ApiKey
	control    *commands.Control
	minControl uint64
	key        string
	keyGiven   bool // by the caller, not made here
	now        time.Time
}

// command starts a command; identity and bucket follow from what it asks for, so seal comes last.
func (d *draft) command(namespace, code string) *pb.LinkCommand {
	return &pb.LinkCommand{
		SchemaVersion: events.SchemaVersion,
		CommandId:     newCommandID(),
		TimeUs:        d.now.UnixMicro(),
		ControlSeq:    d.minControl,
		Actor:         "key:" + d.caller.GetId(),
		Namespace:     namespace,
		Code:          code,
	}
}

// seal gives a finished command its request identity.
func (d *draft) seal(c *pb.LinkCommand, owner, key string) {
	c.Request = &pb.RequestRef{Owner: owner, Key: key, BodyHash: commands.BodyHash(c)}
}

func newCommandID() []byte {
	id := make([]byte, len(commandID{}))
	rand.Read(id) // never fails (crypto/rand)
	return id
}

// rowKey is the request key of a batch's row.
func rowKey(batchKey string, row int) string { return batchKey + "\x00" + strconv.Itoa(row) }

// create turns the fields of a new link into its command. The error is a *commands.Refusal.
func (d *draft) create(f *linkFields, key string) (*pb.LinkCommand, error) {
	if !f.has(commands.FieldTarget) {
		return nil, invalid(commands.FieldTarget, "target is missing")
	}
	namespace, err := d.namespaceOf(f.domain)
	if err != nil {
		return nil, err
	}
	create := &pb.CreateLink{Dedupe: f.dedupe}
	if f.hasCodeLength && (f.codeLength < commands.MinCodeLength || f.codeLength > commands.MaxCodeLength) {
		return nil, invalid(fieldCodeLength, fmt.Sprintf("code_length must be %d to %d", commands.MinCodeLength, commands.MaxCodeLength))
	}
	create.CodeLength = uint32(f.codeLength)
	if create.CodeMode, err = codeMode(f.codeMode); err != nil {
		return nil, err
	}
	if create.Content, err = f.contentOf(); err != nil {
		return nil, err
	}
	code, err := f.customCode()
	if err != nil {
		return nil, err
	}
	c := d.command(namespace, code)
	c.Kind = &pb.LinkCommand_Create{Create: create}
	d.seal(c, d.caller.GetOwner(), key)
	if r := commands.CheckCreate(c); r != nil {
		return nil, r
	}
	return c, nil
}

// namespaceOf returns the namespace of a create's domain, which is a domain's name or alias, or missing. Whether there is
// such a domain, and whose, the writer judges.
func (d *draft) namespaceOf(domain string) (string, error) {
	if domain == "" {
		fallback := d.control.DefaultDomain()
		if fallback == nil {
			return "", commands.Refuse(commands.CodeUnavailable, "", "there is no short domain yet; try again")
		}
		return fallback.GetNamespace(), nil
	}
	namespace, err := events.NormalizeNamespace(domain)
	if err != nil {
		return "", invalid(fieldDomain, err.Error())
	}
	if known := d.control.Resolve(namespace); known != nil {
		return known.GetNamespace(), nil
	}
	return namespace, nil
}

func codeMode(name string) (pb.CodeMode, error) {
	switch CodeMode(name) {
	case "", CodeModeSequential:
		return pb.CodeMode_CODE_MODE_SEQUENTIAL, nil
	case CodeModeRandom:
		return pb.CodeMode_CODE_MODE_RANDOM, nil
	}
	return 0, invalid(fieldCodeMode, "code_mode must be sequential or random")
}

// customCode returns the normalised code, "" if the code is to be generated.
func (f *linkFields) customCode() (string, error) {
	if !f.hasCode {
		return "", nil
	}
	code, err := events.NormalizeCode(f.code)
	if err != nil {
		return "", commands.Refuse(commands.CodeInvalidCode, fieldCode, err.Error())
	}
	return code, nil
}

// typed shows the code of a new link as it was typed. It is stored in NFC, and matched whichever way it is typed.
func (f *linkFields) typed(link *Link) {
	if link != nil && f.hasCode {
		link.Code = f.code
	}
}

// contentOf returns the content that the fields ask for, with what is missing at its default. Limits are not checked, but
// for those that the content's types cannot hold.
func (f *linkFields) contentOf() (*pb.LinkContent, error) {
	content := &pb.LinkContent{Title: f.title, Tags: f.tags}
	if slices.Contains(f.present, commands.FieldTarget) {
		target, err := commands.NormalizeTarget(f.target)
		if err != nil {
			return nil, err
		}
		content.Target = target
	}
	if f.has(commands.FieldRedirectStatus) && f.redirectStatus == 0 || !fitsUint32(f.redirectStatus) {
		return nil, invalid(commands.FieldRedirectStatus, "redirect_status must be one of 301, 302, 307 and 308")
	}
	if !fitsUint32(f.cacheTTL) {
		return nil, invalid(commands.FieldCacheTTL, fmt.Sprintf("cache_ttl must be 0 to %d seconds", commands.MaxCacheTTL))
	}
	content.RedirectStatus, content.CacheTtl = uint32(f.redirectStatus), uint32(f.cacheTTL)
	var err error
	if f.has(commands.FieldExpiredURL) {
		if content.ExpiredUrl, err = commands.NormalizeURL(commands.FieldExpiredURL, f.expiredURL); err != nil {
			return nil, err
		}
	}
	if content.Query, err = f.queryPolicy(); err != nil {
		return nil, err
	}
	if content.NotBeforeUs, err = f.instant(commands.FieldNotBefore, f.notBefore); err != nil {
		return nil, err
	}
	content.ExpiresUs, err = f.instant(commands.FieldExpiresAt, f.expiresAt)
	return content, err
}

// has reports whether a field is there and not null.
func (f *linkFields) has(name string) bool {
	return slices.Contains(f.present, name) && !slices.Contains(f.null, name)
}

func fitsUint32(n int64) bool { return n >= 0 && n <= math.MaxUint32 }

// queryNames are the API's names of query policies, by their number.
var queryNames = [...]LinkQuery{
	pb.QueryPolicy_QUERY_KEEP:     LinkQueryKeep,
	pb.QueryPolicy_QUERY_OVERRIDE: LinkQueryOverride,
	pb.QueryPolicy_QUERY_APPEND:   LinkQueryAppend,
	pb.QueryPolicy_QUERY_DROP:     LinkQueryDrop,
	pb.QueryPolicy_QUERY_REJECT:   LinkQueryReject,
}

func (f *linkFields) queryPolicy() (pb.QueryPolicy, error) {
	if !f.has(commands.FieldQuery) {
		return pb.QueryPolicy_QUERY_KEEP, nil
	}
	i := slices.Index(queryNames[:], LinkQuery(f.query))
	if i < 0 {
		return 0, invalid(commands.FieldQuery, "query must be one of keep, override, append, drop and reject")
	}
	return pb.QueryPolicy(i), nil
}

// instant reads an RFC 3339 time as microseconds since 1970, 0 for none.
func (f *linkFields) instant(field, text string) (int64, error) {
	if !f.has(field) {
		return 0, nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return 0, invalid(field, field+" must be a time as in RFC 3339, such as 2031-05-01T10:48:00+03:00")
	}
	us := t.UnixMicro()
	if us == 0 {
		return 0, invalid(field, field+" cannot be the first instant of 1970; leave it out or take a later one")
	}
	return us, nil
}

// update turns the fields of an update into its command.
func (d *draft) update(f *linkFields, namespace, code string, demanded ifMatch) (*pb.LinkCommand, error) {
	content, err := f.contentOf()
	if err != nil {
		return nil, err
	}
	if r := commands.CheckReason(f.reason); r != nil {
		return nil, r
	}
	c := d.command(namespace, code)
	slices.Sort(f.present) // the order of a body's fields does not make another request of it
	c.Kind = &pb.LinkCommand_Update{Update: &pb.UpdateLink{Content: content, Fields: f.present, IfVersion: demanded.version, OrVersions: demanded.or, Reason: f.reason}}
	return c, nil
}

// change makes the command of a change of status.
func (d *draft) change(action pb.StatusAction, namespace, code, reason string, legal bool, demanded ifMatch) (*pb.LinkCommand, error) {
	if r := commands.CheckReason(reason); r != nil {
		return nil, r
	}
	c := d.command(namespace, code)
	c.Kind = &pb.LinkCommand_ChangeStatus{ChangeStatus: &pb.ChangeLinkStatus{Action: action, Reason: reason, Legal: legal || isLegal(reason),
		IfVersion: demanded.version, OrVersions: demanded.or}}
	return c, nil
}

// isLegal tells a legal reason by its words: "legal", or "legal: ..." with whatever follows.
func isLegal(reason string) bool {
	word, _, _ := strings.Cut(reason, ":")
	return strings.EqualFold(strings.TrimSpace(word), fieldLegal)
}

func invalid(field, detail string) *commands.Refusal {
	return commands.Refuse(commands.CodeInvalidRequest, field, detail)
}
