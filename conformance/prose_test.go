package conformance_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The bounds of a page in plain English, in words of a sentence.
const (
	mostWords = 40
	meanWords = 18
)

// tics are turns that make a reader read twice.
var tics = []*regexp.Regexp{
	regexp.MustCompile(`^(?:Who|Whoever|Whom|Of|Nor|What) [^?]*$`), // as the beginning of a statement
	regexp.MustCompile(`(?i), too\b`),
	regexp.MustCompile(`(?i)\bbesides?\b`),
	regexp.MustCompile(`(?i)\b(?:is|are|was|were) told\b`),
	regexp.MustCompile(`(?i)\bwho(?:ever)? asks\b`),
	regexp.MustCompile(`(?i)\bwhat is there\b`),
	regexp.MustCompile(`(?i)\bthat there (?:is|are)\b`),
	regexp.MustCompile(`(?i)\bso many\b`),
}

// plainPages are held to the bounds.
func plainPages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md", "../docs/*.md", "../docs/guides/*.md", "../docs/reference/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pages...)
	}
	return all
}

// Sentences are short, and begin with their subject.
func TestProse(t *testing.T) {
	for _, page := range plainPages(t) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			words, all := 0, sentences(read(t, page))
			for _, s := range all {
				n := len(strings.Fields(s))
				if words += n; n > mostWords {
					t.Errorf("%d words: %s", n, s)
				}
				for _, tic := range tics {
					if found := tic.FindString(s); found != "" {
						t.Errorf("%q: %s", tic, s)
					}
				}
			}
			if mean := float64(words) / float64(max(1, len(all))); mean > meanWords {
				t.Errorf("a sentence has %.1f words on average, want %d at most", mean, meanWords)
			}
		})
	}
}

// What the test looks for it finds.
func TestProseIsSeen(t *testing.T) {
	got := sentences("# Who asks\n\nOne is here. It is\ntwo `a. b` words (e.g. [this](x.md)).\n\n- An item\n- Another. Third\n\n```\nnot this, too\n```\n| a cell | another, too |\n|---|---|\n")
	want := []string{"One is here.", "It is two X words (e.g. this).", "An item", "Another.", "Third", "a cell", "another, too"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, bad := range []string{"Who asks gets it.", "It is there, too.", "Of these one is right.", "The caller is told so."} {
		seen := false
		for _, tic := range tics {
			seen = seen || tic.MatchString(bad)
		}
		if !seen {
			t.Errorf("%q passes", bad)
		}
	}
}

var (
	fences   = regexp.MustCompile("(?ms)^```.*?^```$")
	codes    = regexp.MustCompile("`[^`\n]*`")
	linked   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	marks    = regexp.MustCompile(`\*\*|<!--.*?-->`)
	items    = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	sentence = regexp.MustCompile(`[.!?](?:["”)]*)\s+(?:[^a-z])`)
)

// sentences lists those of a page's paragraphs, items and cells, but for headings
// and code. Code in a sentence is a word.
func sentences(page string) (all []string) {
	page = marks.ReplaceAllString(fences.ReplaceAllString(page, ""), "")
	page = linked.ReplaceAllString(codes.ReplaceAllString(page, "X"), "$1")
	paragraph := ""
	end := func() {
		all = append(all, split(paragraph)...)
		paragraph = ""
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(strings.ReplaceAll(line, `\|`, "x"), "|"), "|") {
				if cell = strings.TrimSpace(cell); strings.Trim(cell, "-:") != "" {
					all = append(all, split(cell)...)
				}
			}
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "    "):
			end()
		case items.MatchString(line):
			end()
			paragraph = items.ReplaceAllString(line, "")
		default:
			paragraph = strings.TrimSpace(paragraph + " " + strings.TrimSpace(line))
		}
	}
	end()
	return all
}

// split parts a paragraph into its sentences.
func split(text string) (all []string) {
	for text = strings.TrimSpace(text); text != ""; {
		at := sentence.FindStringIndex(text)
		if at == nil {
			return append(all, text)
		}
		_, last := utf8.DecodeLastRuneInString(text[:at[1]])
		all = append(all, strings.TrimSpace(text[:at[1]-last]))
		text = text[at[1]-last:]
	}
	return all
}
