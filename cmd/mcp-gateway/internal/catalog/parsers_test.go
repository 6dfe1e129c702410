package catalog_test

import (
	stdjson "encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/number"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire/wiretest"
)

// TestParsers sends the corpus, and texts made of it, through three parsers. What
// [catalog.Tool.Check] lets through is the same value for JSON.parse, for Python
// and for the gateway. The control is that others of the corpus are not.
func TestParsers(t *testing.T) {
	texts := wiretest.Texts(4000)
	javascript, python := wiretest.Parsers[0].Parse(t, texts), wiretest.Parsers[1].Parse(t, texts)
	anything := tool(t, `{}`)
	passed := 0
	for i, text := range texts {
		standard := wiretest.Standard(text)
		if i < len(wiretest.Corpus) && wiretest.Corpus[i].Apart == (wiretest.Same(javascript[i], python[i]) && wiretest.Same(javascript[i], standard)) {
			t.Errorf("%s: JSON.parse %s, Python %s, encoding/json %s", wiretest.Corpus[i].Name, javascript[i], python[i], standard)
		}
		if len(text) == 0 || anything.Check(text) != nil {
			continue
		}
		passed++
		ours := tell(t, text)
		if !wiretest.Same(ours, javascript[i]) || !wiretest.Same(ours, python[i]) {
			t.Errorf("%q is let through: the gateway reads %s, JSON.parse %s, Python %s", text, ours, javascript[i], python[i])
		}
	}
	if passed < 1000 || passed > len(texts)/2 {
		t.Errorf("of %d texts %d were let through", len(texts), passed)
	}
	t.Logf("%d texts, %d let through", len(texts), passed)
}

// tell writes what the gateway reads, as the parsers do.
func tell(t *testing.T, text []byte) jsontext.Value {
	t.Helper()
	v, err := number.Read(text, func(text string) (any, error) { return stdjson.Number(text), nil })
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return wiretest.Told(v)
}
