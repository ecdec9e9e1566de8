package events

import (
	"unicode"
	"unicode/utf8"
)

// codeASCII marks the ASCII characters that codes may have.
var codeASCII = asciiSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+@&")

func asciiSet(members string) (set [256]bool) {
	for i := range len(members) {
		set[members[i]] = true
	}
	return set
}

// inspectCode checks a code, valid UTF-8 in NFC, against all rules and returns the first broken one with the character
// it was found at. It does not allocate.
func inspectCode(code string, maxLength int) (codeFault, rune) {
	switch {
	case code == "":
		return faultEmpty, 0
	case code == "." || code == "..":
		return faultDots, 0
	case utf8.RuneCountInString(code) > maxLength:
		return faultLong, 0
	}
	var scripts scriptSet
	markable := false
	for i := 0; i < len(code); {
		if n := emojiLength(code[i:]); n > 0 {
			i, markable = i+n, false
			continue
		}
		r, n := utf8.DecodeRuneInString(code[i:])
		kind := classify(r)
		switch {
		case kind == classInvisible:
			return faultInvisible, r
		case kind == classForeign:
			return faultCharacter, r
		case kind == classMark && !markable:
			return faultMark, r
		}
		scripts.add(r)
		i, markable = i+n, kind != classPunctuation
	}
	if scripts.mixed() {
		return faultScripts, 0
	}
	return faultNone, 0
}

type characterClass uint8

const (
	classForeign     characterClass = iota // no code has it
	classInvisible                         // formatting, bidi and other characters that cannot be seen
	classPunctuation                       // - _ . ~ + @ &
	classAlphabetic                        // a letter or decimal digit
	classMark                              // a combining mark that has no precomposed form
)

// classify sorts one character. Emoji are recognised before, as sequences.
func classify(r rune) characterClass {
	switch {
	case r < utf8.RuneSelf && !codeASCII[r]:
		return classForeign
	case r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r):
		return classPunctuation
	case unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return classInvisible
	case unicode.IsLetter(r) || unicode.IsDigit(r):
		return classAlphabetic
	case unicode.In(r, unicode.Mn, unicode.Mc):
		return classMark
	}
	return classForeign
}

// scriptSet remembers which of the scripts that look alike a code uses.
type scriptSet struct{ latin, other bool }

func (s *scriptSet) add(r rune) {
	switch {
	case r < utf8.RuneSelf:
		s.latin = s.latin || unicode.IsLetter(r)
	case unicode.Is(unicode.Latin, r):
		s.latin = true
	case unicode.In(r, unicode.Cyrillic, unicode.Greek):
		s.other = true
	}
}

func (s *scriptSet) mixed() bool { return s.latin && s.other }
