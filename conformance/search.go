package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parts of searches: what is searched has a type alone.
const (
	users   = `"subject":{"type":"user"}`
	records = `"resource":{"type":"record"}`

	// Results, their members in alphabetical order.
	foundAlice   = `{"id":"alice","type":"user"}`
	foundBob     = `{"id":"bob","type":"user"}`
	foundRecord1 = `{"id":"record-1","type":"record"}`
	foundRecord2 = `{"id":"record-2","type":"record"}`
	foundRead    = `{"name":"read"}`
	foundWrite   = `{"name":"write"}`
)

// Whole searches that several checks start from.
var (
	readers       = join(users, read, record1)
	aliceReadable = join(alice, read, records)
	aliceActions  = join(alice, record1)

	findsReaders  = finds(foundAlice, foundBob)
	findsReadable = finds(foundRecord1)
	findsActions  = finds(foundRead, foundWrite)
)

// searchCore is the level of that name of the certification scenario.
var searchCore = []row{
	{"c-4-2-1", searchSubject.post(readers), findsReaders},
	{"c-4-2-2", searchSubject.post(readers, join(users, read, record1, context)), both(findsReaders, same)},
	{"c-4-2-3", searchSubject.post(readers, join(alice, read, record1)), both(findsReaders, same)},
	{"c-4-3-1", searchResource.post(aliceReadable), findsReadable},
	{"c-4-3-2", searchResource.post(aliceReadable, join(alice, read, records, context)), both(findsReadable, same)},
	{"c-4-3-3", searchResource.post(aliceReadable, join(alice, read, record1)), both(findsReadable, same)},
	{"c-4-4-1", searchAction.post(aliceActions), findsActions},
	{"c-4-4-2", searchAction.post(aliceActions, join(alice, record1, context)), both(findsActions, same)},
	{"c-4-5-1", searchSubject.post(paged(readers, `"limit":1`)), finds()},
	{"c-4-5-2", searchSubject.post(paged(readers, `"limit":1`)).followed(false), both(findsTogether(foundAlice, foundBob), pagesToTheEnd)},
	{"c-4-5-3", searchSubject.post(paged(readers, `"limit":1`)).followed(true), both(findsTogether(foundAlice, foundBob), pagesToTheEnd)},
	{"c-4-5-4", searchSubject.post(paged(readers, `"limit":100`)), both(findsReaders, pagesToTheEnd)},
	{"c-4-6-1", searchSubject.post(join(users, read, `"resource":{"type":"record","id":"nonexistent-record"}`)).
		and(searchResource.post(join(`"subject":{"type":"user","id":"nonexistent-user"}`, read, records))).
		and(searchAction.post(join(`"subject":{"type":"user","id":"nonexistent-user"}`, record1))), findsNothing},
	{"c-4-6-2", searchSubject.post(join(`"subject":{"type":"spaceship"}`, read, record1), join(users, read, `"resource":{"type":"spaceship","id":"1"}`)).
		and(searchResource.post(join(alice, read, `"resource":{"type":"spaceship"}`), join(`"subject":{"type":"spaceship","id":"1"}`, read, records))).
		and(searchAction.post(join(`"subject":{"type":"spaceship","id":"1"}`, record1), join(alice, `"resource":{"type":"spaceship","id":"1"}`))), findsNothing},
	{"c-4-7-1", searchSubject.post(join(users, record1)).
		and(searchResource.post(join(read, records))).
		and(searchAction.post(join(alice))), status(badRequest)},
	{"c-4-7-2", searchSubject.post(join(users, read, records)).
		and(searchResource.post(join(users, read, records))).
		and(searchAction.post(join(users, record1))), status(badRequest)},
}

// searchProperties is the level of that name of the certification scenario.
var searchProperties = []row{
	{"c-4-2-4", searchSubject.post(join(users, write, archived2)), finds(foundBob)},
	{"c-4-3-4", searchResource.post(join(admin, write, records)), finds(foundRecord2)},
	{"c-4-4-3", searchAction.post(join(admin, archived2)), finds(foundWrite)},
}

// subjectSearchModules is the plan authzen-pdp-subject-search-test-plan with
// authzen_support=properties.
func subjectSearchModules() []row {
	base := sample{readers, findsReaders}
	return modules(searchSubject, common(searchSubject, base, base, same), []row{
		{"valid-subject-search-request-with-non-empty-results", searchSubject.post(readers), findsReaders},
		{"subject-search-with-context", searchSubject.post(join(users, read, record1, context)), findsReaders},
		{"subject-search-with-subject-id-omitted", searchSubject.post(readers), findsReaders},
		{"extra-subject-id-ignored", searchSubject.post(join(`"subject":{"type":"user","id":"ignored-stray-id"}`, read, record1)), findsReaders},
		{"subject-search-with-resource-properties", searchSubject.post(join(users, write, archived2)), finds(foundBob)},
		{"request-with-page-limit", searchSubject.post(paged(readers, `"limit":1`)).followed(true), findsTogether(foundAlice, foundBob)},
		{"unknown-page-fields-ignored", searchSubject.post(paged(readers, `"limit":10,"customAttr":"x"`)), findsReaders},
		{"unknown-entity-type", searchSubject.post(join(`"subject":{"type":"spaceship"}`, read, record1)), finds()},
		{"missing-action", searchSubject.post(join(users, record1)), status(badRequest)},
		{"action-missing-name", searchSubject.post(join(users, `"action":{}`, record1)), status(badRequest)},
		{"missing-resource", searchSubject.post(join(users, read)), status(badRequest)},
		{"resource-missing-id", searchSubject.post(join(users, read, records)), status(badRequest)},
		{"resource-missing-type", searchSubject.post(join(users, read, `"resource":{"id":"record-1"}`)), status(badRequest)},
		{"subject-missing-type", searchSubject.post(join(`"subject":{}`, read, record1)), status(badRequest)},
		{"action-is-string", searchSubject.post(join(users, `"action":"read"`, record1)), status(badRequest)},
	})
}

// resourceSearchModules is the plan authzen-pdp-resource-search-test-plan with
// authzen_support=properties.
func resourceSearchModules() []row {
	base := sample{aliceReadable, findsReadable}
	return modules(searchResource, common(searchResource, base, base, same), []row{
		{"valid-resource-search-request-with-non-empty-results", searchResource.post(aliceReadable), findsReadable},
		{"resource-search-with-resource-id-omitted", searchResource.post(aliceReadable), findsReadable},
		{"extra-resource-id-ignored", searchResource.post(join(alice, read, `"resource":{"type":"record","id":"ignored-stray-id"}`)), findsReadable},
		{"resource-search-with-subject-properties", searchResource.post(join(admin, write, records)), finds(foundRecord2)},
		{"missing-subject", searchResource.post(join(read, records)), status(badRequest)},
		{"subject-missing-id", searchResource.post(join(users, read, records)), status(badRequest)},
		{"missing-resource", searchResource.post(join(alice, read)), status(badRequest)},
		{"resource-missing-type", searchResource.post(join(alice, read, `"resource":{}`)), status(badRequest)},
		{"missing-action", searchResource.post(join(alice, records)), status(badRequest)},
		{"action-missing-name", searchResource.post(join(alice, `"action":{}`, records)), status(badRequest)},
	})
}

// actionSearchModules is the plan authzen-pdp-action-search-test-plan with
// authzen_support=properties.
func actionSearchModules() []row {
	base := sample{aliceActions, findsActions}
	return modules(searchAction, common(searchAction, base, base, same), []row{
		{"valid-action-search-request-with-non-empty-results", searchAction.post(aliceActions), findsActions},
		{"action-search-with-context", searchAction.post(join(alice, record1, context)), both(findsActions, same)},
		{"action-search-with-properties", searchAction.post(join(admin, archived2)), finds(foundWrite)},
		{"extra-action-ignored", searchAction.post(join(alice, read, record1)), findsActions},
		{"unknown-entity-identifier", searchAction.post(join(`"subject":{"type":"user","id":"nonexistent-user"}`, record1)), finds()},
		{"missing-resource", searchAction.post(join(alice)), status(badRequest)},
		{"resource-missing-id", searchAction.post(join(alice, records)), status(badRequest)},
		{"resource-missing-type", searchAction.post(join(alice, `"resource":{"id":"record-1"}`)), status(badRequest)},
		{"missing-subject", searchAction.post(join(record1)), status(badRequest)},
		{"subject-missing-id", searchAction.post(join(users, record1)), status(badRequest)},
		{"subject-missing-type", searchAction.post(join(`"subject":{"id":"alice"}`, record1)), status(badRequest)},
		{"subject-is-string", searchAction.post(join(`"subject":"alice"`, record1)), status(badRequest)},
	})
}

// paged adds members of a page to a search.
func paged(search, members string) string {
	return strings.TrimSuffix(search, "}") + `,"page":{` + members + `}}`
}

// Results are what a search answers: each as text, its members in alphabetical
// order.
type results struct {
	page  object
	found []string
}

// results returns those of an answer. Each must be of the form and the type
// that was searched, and the page, if there is one, comes first.
func (a answer) results() (results, error) {
	body, err := a.object()
	if err != nil {
		return results{}, err
	}
	var out results
	if page, ok := body["page"]; ok {
		if out.page, err = a.page(page); err != nil {
			return results{}, err
		}
	}
	if context, ok := body["context"]; ok && context.Kind() != '{' {
		return results{}, fmt.Errorf("context is %s, not an object", context)
	}
	if body["results"].Kind() != '[' {
		return results{}, errors.New("results is not an array")
	}
	var found []object
	if err := json.Unmarshal(body["results"], &found); err != nil {
		return results{}, fmt.Errorf("results: %w", err)
	}
	for _, f := range found {
		text, err := a.result(f)
		if err != nil {
			return results{}, err
		}
		out.found = append(out.found, text)
	}
	return out, nil
}

// page checks the form of a page.
func (a answer) page(raw jsontext.Value) (object, error) {
	var page object
	if err := json.Unmarshal(raw, &page); err != nil || page == nil {
		return nil, fmt.Errorf("page is %s, not an object", raw)
	}
	if page["next_token"].Kind() != '"' {
		return nil, errors.New("page has no next_token")
	}
	for _, name := range []string{"count", "total"} {
		if n, ok := page[name]; ok && (n.Kind() != '0' || strings.ContainsAny(string(n), "-.eE")) {
			return nil, fmt.Errorf("page.%s is %s", name, n)
		}
	}
	if !strings.HasPrefix(strings.Join(strings.Fields(string(a.body)), ""), `{"page"`) {
		return nil, errors.New("page is not the first member")
	}
	return page, nil
}

// result checks the form of one result and returns its text.
func (a answer) result(f object) (string, error) {
	if a.request.api == searchAction {
		if f["name"].Kind() != '"' || string(f["name"]) == `""` {
			return "", fmt.Errorf("an action has no name: %s", f)
		}
	} else if wanted := a.request.searched(); f["id"].Kind() != '"' || string(f["type"]) != wanted {
		return "", fmt.Errorf("a result has no id, or is not of type %s: %s", wanted, f)
	}
	text, err := json.Marshal(f, json.Deterministic(true))
	return string(text), err
}

// searched is the type that a request searches, as JSON.
func (r request) searched() string {
	var body, entity object
	if json.Unmarshal([]byte(r.body), &body) != nil { // such a body has no results
		return ""
	}
	if json.Unmarshal(body[strings.TrimSuffix(r.api.name, "-search")], &entity) != nil {
		return ""
	}
	return string(entity["type"])
}

// finds demands these results, and perhaps others, of every answer.
func finds(wanted ...string) demand {
	return each(func(a answer) error {
		got, err := a.results()
		if err != nil {
			return err
		}
		return contain(got.found, wanted)
	})
}

// findsTogether demands these results of all answers together, each once.
func findsTogether(wanted ...string) demand {
	return func(answers []answer) error {
		var all []string
		for _, a := range answers {
			got, err := a.results()
			if err != nil {
				return fmt.Errorf("%v: %w", a, err)
			}
			all = append(all, got.found...)
		}
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) < len(all) {
			return fmt.Errorf("a result came twice: %s", all)
		}
		return contain(all, wanted)
	}
}

func contain(found, wanted []string) error {
	for _, w := range wanted {
		if !slices.Contains(found, w) {
			return fmt.Errorf("there is no %s in %s", w, found)
		}
	}
	return nil
}

// findsNothing demands that there are no results.
var findsNothing = each(func(a answer) error {
	got, err := a.results()
	if err == nil && len(got.found) > 0 {
		err = fmt.Errorf("found %s", got.found)
	}
	return err
})

// pagesToTheEnd demands of answers to a search and what followed it that each
// says that there is more but for the last, which says that there is not.
func pagesToTheEnd(answers []answer) error {
	for i, a := range answers {
		got, err := a.results()
		if err != nil {
			return err
		}
		if got.page == nil && len(answers) > 1 {
			return fmt.Errorf("%v: there is no page", a)
		}
		more := got.page != nil && string(got.page["next_token"]) != `""`
		if last := i == len(answers)-1; more == last {
			return fmt.Errorf("%v: answer %d of %d says more=%t", a, i+1, len(answers), more)
		}
	}
	return nil
}
