package gateway

import (
	"fmt"

	"github.com/hoplog/hoplog/commands"
)

// maxBatchRows is how many links one batch may create.
const maxBatchRows = 1000

// Names of the fields of requests that are not content.
const (
	fieldLinks      = "links"
	fieldDomain     = "domain"
	fieldCode       = "code"
	fieldCodeLength = "code_length"
	fieldCodeMode   = "code_mode"
	fieldDedupe     = "dedupe"
	fieldReason     = "reason"
	fieldLegal      = "legal"
)

// linkFields is a link as a request's JSON has it: the right types, values not judged yet.
type linkFields struct {
	present []string // content fields that are there, null or not
	null    []string // those that are null

	target, title, query, notBefore, expiresAt, expiredURL string
	tags                                                   []string
	redirectStatus, cacheTTL                               int64

	// Of a create.
	domain, code, codeMode string
	codeLength             int64
	hasCode, hasCodeLength bool
	dedupe                 bool

	// Of an update.
	reason string
}

func decodeCreate(data []byte) (linkFields, error) {
	var f linkFields
	return f, decodeBody(data, func(r *jsonReader) error { return r.create(&f) })
}

func decodeBatch(data []byte) (rows []linkFields, err error) {
	err = decodeBody(data, func(r *jsonReader) error {
		return r.object(func(name string) (bool, error) {
			if name != fieldLinks {
				return false, nil
			}
			return true, r.array(maxBatchRows, func(i int) error {
				rows = append(rows, linkFields{})
				return r.create(&rows[i])
			})
		})
	})
	if err == nil && len(rows) == 0 {
		err = commands.Refuse(commands.CodeInvalidRequest, fieldLinks, fmt.Sprintf("links must have 1 to %d rows", maxBatchRows))
	}
	return rows, err
}

func decodeUpdate(data []byte) (linkFields, error) {
	var f linkFields
	return f, decodeBody(data, func(r *jsonReader) error {
		return r.object(func(name string) (known bool, err error) {
			if name == fieldReason {
				f.reason, err = r.str()
				return true, err
			}
			return r.content(&f, name)
		})
	})
}

// decodeStatus reads the body of a change of status, which may be left out.
func decodeStatus(data []byte, mayBeLegal bool) (reason string, legal bool, err error) {
	if len(data) == 0 {
		return "", false, nil
	}
	err = decodeBody(data, func(r *jsonReader) error {
		return r.object(func(name string) (known bool, err error) {
			switch {
			case name == fieldReason:
				reason, err = r.str()
			case name == fieldLegal && mayBeLegal:
				legal, err = r.boolean()
			default:
				return false, nil
			}
			return true, err
		})
	})
	return reason, legal, err
}

// decodeBody reads a whole body with read.
func decodeBody(data []byte, read func(*jsonReader) error) error {
	r, err := newJSONReader(data)
	if err != nil {
		return err
	}
	if err := read(r); err != nil {
		return err
	}
	return r.end()
}

// create reads the fields of a new link.
func (r *jsonReader) create(f *linkFields) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case fieldDomain:
			f.domain, err = r.optional()
		case fieldCode:
			f.hasCode = !r.null()
			if f.hasCode {
				f.code, err = r.str()
			}
		case fieldCodeLength:
			f.hasCodeLength = !r.null()
			if f.hasCodeLength {
				f.codeLength, err = r.integer()
			}
		case fieldCodeMode:
			f.codeMode, err = r.optional()
		case fieldDedupe:
			if !r.null() {
				f.dedupe, err = r.boolean()
			}
		default:
			return r.content(f, name)
		}
		return true, err
	})
}

// optional reads a string; null is the empty one.
func (r *jsonReader) optional() (string, error) {
	if r.null() {
		return "", nil
	}
	return r.str()
}

// content reads one field of a link's content; null stands for its default.
func (r *jsonReader) content(f *linkFields, name string) (known bool, err error) {
	read, known := contentReaders[name]
	if !known {
		return false, nil
	}
	f.present = append(f.present, name)
	if name != commands.FieldTarget && r.null() {
		f.null = append(f.null, name)
		return true, nil
	}
	return true, read(r, f)
}

var contentReaders = map[string]func(r *jsonReader, f *linkFields) error{
	commands.FieldTarget:         func(r *jsonReader, f *linkFields) (err error) { f.target, err = r.str(); return err },
	commands.FieldTitle:          func(r *jsonReader, f *linkFields) (err error) { f.title, err = r.str(); return err },
	commands.FieldTags:           (*jsonReader).tags,
	commands.FieldRedirectStatus: func(r *jsonReader, f *linkFields) (err error) { f.redirectStatus, err = r.integer(); return err },
	commands.FieldQuery:          func(r *jsonReader, f *linkFields) (err error) { f.query, err = r.str(); return err },
	commands.FieldCacheTTL:       func(r *jsonReader, f *linkFields) (err error) { f.cacheTTL, err = r.integer(); return err },
	commands.FieldNotBefore:      func(r *jsonReader, f *linkFields) (err error) { f.notBefore, err = r.str(); return err },
	commands.FieldExpiredURL:     func(r *jsonReader, f *linkFields) (err error) { f.expiredURL, err = r.str(); return err },
	commands.FieldExpiresAt:      func(r *jsonReader, f *linkFields) (err error) { f.expiresAt, err = r.str(); return err },
}

func (r *jsonReader) tags(f *linkFields) error {
	return r.array(commands.MaxTags, func(int) error {
		tag, err := r.str()
		f.tags = append(f.tags, tag)
		return err
	})
}
