package console_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/policy-service/policy-service/conformance/external"
)

// axe is the source of axe-core.
var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("testdata/node_modules/axe-core/axe.min.js")
	return string(text), err
})

// A violation is a finding of axe-core.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML string `json:"html"`
	} `json:"nodes"`
}

// accessible runs axe-core on the page as it is (WCAG 2.2 A and AA, and best practices). It must find
// nothing.
func (b *browser) accessible() {
	b.Helper()
	external.Packages(b.TB, "testdata")
	source, err := axe()
	if err != nil {
		b.Fatal(err)
	}
	found := evalAwait[[]violation](b, source+`;
		axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(({id, help, nodes}) => ({id, help, nodes: nodes.map(({html}) => ({html}))})))`)
	for _, v := range found {
		var places []string
		for _, node := range v.Nodes {
			places = append(places, node.HTML)
		}
		b.Errorf("%s (%s): %s: %s\n\t%s", b.url(), b.look, v.ID, v.Help, strings.Join(places, "\n\t"))
	}
}

// everyLook runs a test in every size and colour.
func everyLook(t *testing.T, test func(*testing.T, look)) {
	for _, l := range looks {
		t.Run(fmt.Sprint(l), func(t *testing.T) { test(t, l) })
	}
}
