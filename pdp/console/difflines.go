package console

// A comparedLine is a line of two texts, or of one of them, as the admin API has it.
type comparedLine struct {
	Change string         `json:"change"`
	Before int            `json:"before"`
	After  int            `json:"after"`
	Parts  []comparedPart `json:"parts"`
}

type comparedPart struct {
	Text    string `json:"text"`
	Changed bool   `json:"changed"`
}

// A diffLine is a line of two texts, or of one of them.
type diffLine struct {
	Change string // added, removed, or "" for a line of both
	Number int    // in the file that has it; of a line of both, after the change
	Gap    bool   // lines of both texts before it are left out
	Spans  []diffSpan
}

// A diffSpan is a piece of a line.
type diffSpan struct {
	span
	Changed bool // it is what differs in a line that is otherwise similar
}

// diffLines returns lines for a page, those of Cedar with colours.
func diffLines(lines []comparedLine, cedar bool) (all []diffLine) {
	before, after := 0, 0 // numbers of the last lines
	for i, l := range lines {
		out := diffLine{Change: l.Change, Number: l.After, Spans: diffSpans(l.Parts, cedar)}
		if l.Change == "removed" {
			out.Number = l.Before
		}
		out.Gap = i > 0 && l.Before > before+1 && l.After > after+1
		before, after = max(before, l.Before), max(after, l.After)
		all = append(all, out)
	}
	return all
}

// diffSpans returns the pieces of a line, cut where a colour or a change ends.
func diffSpans(parts []comparedPart, cedar bool) (all []diffSpan) {
	text := ""
	for _, p := range parts {
		text += p.Text
	}
	spans := []span{{Text: text}}
	if cedar {
		spans = cedarLines(text, 1)[0].Spans
	}
	for len(spans) > 0 && len(parts) > 0 {
		n := min(len(spans[0].Text), len(parts[0].Text))
		if n > 0 {
			all = append(all, diffSpan{span{spans[0].Class, spans[0].Text[:n]}, parts[0].Changed})
		}
		spans[0].Text = spans[0].Text[n:]
		parts = append([]comparedPart{{Text: parts[0].Text[n:], Changed: parts[0].Changed}}, parts[1:]...)
		if spans[0].Text == "" {
			spans = spans[1:]
		}
		if parts[0].Text == "" {
			parts = parts[1:]
		}
	}
	return all
}
