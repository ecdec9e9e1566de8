package gateway

import (
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Names of fields of the control plane's requests.
const (
	fieldKind  = "kind"
	fieldValue = "value"
	fieldTier  = "tier"
	fieldNote  = "note"
)

// entryFields is an entry as a request's JSON has it.
type entryFields struct{ kind, value, reason, tier, note, expiresAt string }

// decodeEntry reads the body of an addition to a list and brings its value into normal form.
func decodeEntry(data []byte, list pb.ListName, control *commands.Control) (*pb.ListEntry, error) {
	f := entryFields{kind: commands.ListKinds(list)[0]}
	if list == pb.ListName_DENYLIST || list == pb.ListName_TRUST {
		f.kind = ""
	}
	if err := decodeBody(data, func(r *jsonReader) error { return r.entry(&f, list) }); err != nil {
		return nil, err
	}
	entry := &pb.ListEntry{List: list, Note: f.note}
	var known bool
	if entry.Kind, known = commands.ParseListKind(list, f.kind); !known {
		return nil, invalid(fieldKind, "kind must be "+oneOf(commands.ListKinds(list)))
	}
	if err := f.judgement(entry); err != nil {
		return nil, err
	}
	var err error
	if entry.ExpiresUs, err = expiryOf(f.expiresAt); err != nil {
		return nil, err
	}
	entry.Value, err = commands.NormalizeListValue(entry.GetKind(), f.value, control)
	return entry, err
}

// judgement reads what an entry says: the reason of a denial, the tier of trust.
func (f *entryFields) judgement(entry *pb.ListEntry) error {
	switch DenyReason(f.reason) {
	case "", DenyReasonAbuse:
	case DenyReasonLegal:
		entry.Legal = true
	default:
		return invalid(fieldReason, "reason must be abuse or legal")
	}
	if entry.GetList() != pb.ListName_TRUST {
		return nil
	}
	var known bool
	if entry.Tier, known = commands.ParseTier(f.tier); !known {
		return invalid(fieldTier, "tier must be low, standard or high")
	}
	return nil
}

// entry reads the fields of an addition to a list.
func (r *jsonReader) entry(f *entryFields, list pb.ListName) error {
	return r.object(func(name string) (known bool, err error) {
		switch {
		case name == fieldKind:
			f.kind, err = r.str()
		case name == fieldValue:
			f.value, err = r.str()
		case name == fieldReason && list == pb.ListName_DENYLIST:
			f.reason, err = r.str()
		case name == fieldTier && list == pb.ListName_TRUST:
			f.tier, err = r.str()
		case name == fieldNote:
			f.note, err = r.str()
		case name == commands.FieldExpiresAt:
			f.expiresAt, err = r.optional()
		default:
			return false, nil
		}
		return true, err
	})
}

// decodeNote reads the body of a confirmation, which may be left out.
func decodeNote(data []byte) (note string, err error) {
	if len(data) == 0 {
		return "", nil
	}
	err = decodeBody(data, func(r *jsonReader) error {
		return r.object(func(name string) (known bool, err error) {
			if name != fieldNote {
				return false, nil
			}
			note, err = r.str()
			return true, err
		})
	})
	return note, err
}

// expiryOf reads when an entry expires, in microseconds; 0: never.
func expiryOf(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return 0, invalid(commands.FieldExpiresAt, "expires_at must be a time as in RFC 3339, such as 2031-05-01T10:48:00+03:00")
	}
	return max(t.UnixMicro(), 1), nil
}

// oneOf names alternatives: "a, b or c".
func oneOf(names []string) string {
	out := names[0]
	for i, name := range names[1:] {
		if i == len(names)-2 {
			out += " or " + name
		} else {
			out += ", " + name
		}
	}
	return out
}
