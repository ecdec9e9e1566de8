package gateway

import "bytes"

// redirectLanguage is a language that the pages for visitors are written in.
type redirectLanguage uint8

// The languages; the first is for who asks for none of them.
const (
	redirectEnglish redirectLanguage = iota
	redirectChinese                  // in simplified characters
	redirectLanguages
)

// redirectLanguageTags are the languages as Content-Language and HTML name them (BCP 47).
var redirectLanguageTags = [redirectLanguages]string{"en", "zh-Hans"}

// Bounds of what is read of an Accept-Language; browsers send a tenth of it.
const (
	redirectMaxAcceptLanguage = 512 // bytes
	redirectMaxLanguageRanges = 32
)

// redirectLanguageOf chooses the language of a page by Accept-Language (RFC 9110, section 12.5.4): by the best quality that the
// header gives a language, whatever the script and the region that stand behind it; at the same quality what comes first.
// "*" is for the languages that are not named. Ranges that are not valid are passed over.
//
// It is a matcher of its own because every refused visit asks it, the many of a scan too: it does not allocate and looks at a
// bounded part of the header, while golang.org/x/text/language makes tags of the whole of it, microseconds and dozens of
// allocations, to tell apart what here are two primary subtags.
func redirectLanguageOf(header []byte) redirectLanguage {
	if len(header) == 0 {
		return redirectEnglish
	}
	if len(header) > redirectMaxAcceptLanguage {
		header = header[:redirectMaxAcceptLanguage]
		header = header[:max(0, bytes.LastIndexByte(header, ','))] // a range that was cut is none
	}
	best, others := [redirectLanguages]redirectQuality{}, redirectQuality{}
	var item []byte
	for place, more := 0, len(header) > 0; more && place < redirectMaxLanguageRanges; place++ {
		item, header, more = bytes.Cut(header, []byte(","))
		tag, thousandths, ok := redirectLanguageRange(item)
		if !ok {
			continue
		}
		if quality := (redirectQuality{true, thousandths, place}); string(tag) == "*" {
			others = quality.orBetter(others)
		} else if language := redirectLanguageNamed(tag); language < redirectLanguages {
			best[language] = quality.orBetter(best[language])
		}
	}
	chosen := redirectEnglish
	for language := range best {
		if !best[language].named {
			best[language] = others
		}
		if best[language].before(best[chosen]) {
			chosen = redirectLanguage(language)
		}
	}
	return chosen
}

// redirectQuality is how much a language is wanted.
type redirectQuality struct {
	named       bool
	thousandths int
	place       int // in the header
}

func (q redirectQuality) before(other redirectQuality) bool {
	return q.thousandths > other.thousandths || q.thousandths == other.thousandths && q.thousandths > 0 && q.place < other.place
}

func (q redirectQuality) orBetter(other redirectQuality) redirectQuality {
	if other.named && !q.before(other) {
		return other
	}
	return q
}

// redirectLanguageNamed returns the language of a range by its first subtag, redirectLanguages if there is no page in it.
func redirectLanguageNamed(tag []byte) redirectLanguage {
	primary, _, _ := bytes.Cut(tag, []byte("-"))
	if len(primary) == 2 {
		switch [2]byte{primary[0] | 0x20, primary[1] | 0x20} {
		case [2]byte{'e', 'n'}:
			return redirectEnglish
		case [2]byte{'z', 'h'}:
			return redirectChinese
		}
	}
	return redirectLanguages
}

// redirectLanguageRange reads one range and its quality in thousandths.
func redirectLanguageRange(item []byte) (tag []byte, thousandths int, ok bool) {
	tag, weight, weighted := bytes.Cut(item, []byte(";"))
	tag = bytes.Trim(tag, " \t")
	if !weighted {
		return tag, 1000, len(tag) > 0
	}
	weight = bytes.Trim(weight, " \t")
	if len(weight) < 3 || weight[0]|0x20 != 'q' || weight[1] != '=' {
		return nil, 0, false
	}
	thousandths, ok = redirectQualityValue(weight[2:])
	return tag, thousandths, ok && len(tag) > 0
}

// redirectQualityValue reads a qvalue (RFC 9110, section 12.4.2): 0 to 1 with at most three decimals.
func redirectQualityValue(text []byte) (thousandths int, ok bool) {
	if len(text) == 0 || len(text) > len("0.000") || text[0] != '0' && text[0] != '1' || len(text) > 1 && text[1] != '.' {
		return 0, false
	}
	thousandths = int(text[0]-'0') * 1000
	for i, unit := 2, 100; i < len(text); i, unit = i+1, unit/10 {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		thousandths += int(text[i]-'0') * unit
	}
	return thousandths, thousandths <= 1000
}
