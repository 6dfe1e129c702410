package conformance

import (
	"errors"
	"net/http"
	"strings"
)

// Parts of requests about the fixture: alice and bob, who is an admin;
// record-1, which is active, and record-2, which is archived.
const (
	alice   = `"subject":{"type":"user","id":"alice"}`
	bob     = `"subject":{"type":"user","id":"bob"}`
	admin   = `"subject":{"type":"user","id":"bob","properties":{"role":"admin"}}`
	read    = `"action":{"name":"read"}`
	write   = `"action":{"name":"write"}`
	soft    = `"action":{"name":"delete","properties":{"soft":true}}`
	hard    = `"action":{"name":"delete","properties":{"soft":false}}`
	record1 = `"resource":{"type":"record","id":"record-1"}`
	record2 = `"resource":{"type":"record","id":"record-2"}`

	active1   = `"resource":{"type":"record","id":"record-1","properties":{"status":"active"}}`
	archived2 = `"resource":{"type":"record","id":"record-2","properties":{"status":"archived"}}`

	context = `"context":{"time":"2025-06-27T18:03-07:00","ip":"192.168.1.1"}`
	unknown = `"foo":"bar","futureField":{"nested":true}`
	options = `"options":{"evaluations_semantic":"execute_all"}`
)

// Whole requests that several checks start from.
var (
	aliceReads = join(alice, read, record1)
	bobWrites  = join(bob, write, record1)

	aliceReadsBoth    = join(alice, read, items(join(record1), join(record2)))
	bobReadsAndWrites = join(bob, record1, items(join(read), join(write)))
)

// join makes an object of members.
func join(members ...string) string { return "{" + strings.Join(members, ",") + "}" }

// items is the member that makes a batch of objects.
func items(objects ...string) string { return `"evaluations":[` + strings.Join(objects, ",") + `]` }

const badRequest = http.StatusBadRequest

var basicCore = []row{
	{"c-2-2-1", evaluation.post(aliceReads), decides(true)},
	{"c-2-2-2", evaluation.post(bobWrites), decides(false)},
	{"c-2-2-3", evaluation.post(join(alice, read, record1, context)), decides(true)},
	{"c-2-2-8", evaluation.post(additionalProperties), decides(true)},
	{"c-2-2-9", evaluation.post(join(alice, read, record1, unknown)), decides(true)},
	{"c-2-3-1", evaluation.post(aliceReads), decides(true)},
	{"c-2-3-2", evaluation.post(bobWrites), decides(false)},
	{"c-2-4-1", evaluation.post(join(read, record1), join(alice, record1), join(alice, read)), status(badRequest)},
	{"c-2-4-2", evaluation.post(
		join(`"subject":{"id":"alice"}`, read, record1),
		join(`"subject":{"type":"user"}`, read, record1),
		join(alice, `"action":{}`, record1),
		join(alice, read, `"resource":{"id":"record-1"}`),
		join(alice, read, `"resource":{"type":"record"}`),
	), status(badRequest)},
	{"c-2-4-3", evaluation.post(aliceReads).as("text/plain", "application/xml", "application/json-patch+json", ""), status(badRequest)},
	{"c-2-4-4", evaluation.post(
		`{`,
		`{"subject":`,
		aliceReads[:len(aliceReads)-1],
		aliceReads+`}`,
		aliceReads+aliceReads,
		strings.ReplaceAll(aliceReads, `"`, `'`),
	), status(badRequest)},
	{"c-2-4-5", evaluation.post("", " \n"), status(badRequest)},
	{"c-2-4-6", evaluation.post(
		join(`"subject":"alice"`, read, record1),
		join(alice, `"action":{"name":123}`, record1),
		join(alice, read, `"resource":["record","record-1"]`),
		join(alice, read, `"resource":{"type":"record","id":null}`),
		join(alice, read, record1, `"context":"none"`),
	), status(badRequest)},
	{"c-2-5-1", evaluation.post(aliceReads, bobWrites, join(read), "").
		and(evaluation.post(aliceReads).by(http.MethodGet)).tagged(), echoes},
	{"c-2-5-2", evaluation.post(aliceReads), decides(true)},
	{"c-2-6", evaluation.post(aliceReads).times(3), decides(true)},
}

// additionalProperties names properties that have nothing to do with the
// decision on every entity.
var additionalProperties = join(
	`"subject":{"type":"user","id":"alice","properties":{"department":"Sales","role":"manager"}}`,
	`"action":{"name":"read","properties":{"method":"GET"}}`,
	`"resource":{"type":"record","id":"record-1","properties":{"status":"active","owner":"bob"}}`,
)

var basicProperties = []row{
	{"c-2-2-4", evaluation.post(join(alice, write, archived2)), decides(false)},
	{"c-2-2-5", evaluation.post(join(admin, write, archived2)), decides(true)},
	{"c-2-2-6", evaluation.post(join(alice, soft, record1)), decides(true)},
	{"c-2-2-7", evaluation.post(join(alice, hard, record1)), decides(false)},
}

var batchCore = []row{
	{"c-3-2-1", evaluations.post(aliceReadsBoth), batchOf(2)},
	{"c-3-2-2", evaluations.post(bobReadsAndWrites), batch(true, false)},
	{"c-3-2-5", evaluations.post(fullySpecified), batch(true, false)},
	{"c-3-2-6", evaluations.post(contextInherited), batchOf(2)},
	{"c-3-3-1", evaluations.post(
		join(alice, read, items(join(record1), join(record2), join(record1), join(record2), join(record1))),
	), batchOf(5)},
	{"c-3-3-2", evaluations.post(
		join(bob, record1, items(join(write), join(read), join(read), join(write), join(read))),
	), batch(false, true, true, false, true)},
	{"c-3-3-3", evaluations.post(aliceReadsBoth, bobReadsAndWrites), batchOf(2)},
	{"c-3-3-4", evaluations.post(bobReadsAndWrites), batch(true, false)},
	{"c-3-4-1", evaluations.post(
		join(alice, read, options, items(join(record1), `{}`)),
		join(alice, read, items(join(record1), `{}`)),
		join(alice, read, items(join(record1), join(`"resource":{"type":"record"}`))),
	), batch(true, false)},
	{"c-3-4-2", evaluations.post(aliceReads), single(true)},
	{"c-3-4-3", evaluations.post(join(alice, read, record1, items())), single(true)},
}

// fullySpecified has nothing to inherit.
var fullySpecified = join(items(aliceReads, bobWrites))

// contextInherited has a context of its own in the second item only.
var contextInherited = join(alice, read, `"context":{"time":"2025-06-27T18:03-07:00"}`, items(
	join(record1),
	join(record2, `"context":{"time":"2025-06-27T19:00-07:00","source":"batch-override"}`),
))

var batchProperties = []row{
	{"c-3-2-3", evaluations.post(join(alice, write, items(join(active1), join(archived2)))), batch(true, false)},
	{"c-3-2-4", evaluations.post(join(write, archived2, items(join(alice), join(admin)))), batch(false, true)},
	{"c-3-2-7", evaluations.post(
		join(alice, write, record1, items(`{}`, join(archived2))),
		typeInherited,
	), batch(true, false)},
}

// typeInherited has a first item that names no type for its resource.
var typeInherited = join(alice, write, `"resource":{"type":"record"}`, items(
	join(`"resource":{"id":"record-1","properties":{"status":"active"}}`),
	join(archived2),
))

// transport is what every API must do, asked of each.
var transport = []row{
	{"c-5-2", everywhere(aliceReads, readers, aliceReadable, aliceActions), asInFixture},
	{"c-5-3", everywhere(join(read, record1), join(read, record1), join(read, records), join(record1)), status(badRequest)},
	{"c-5-4", everywhere(aliceReads, readers, aliceReadable, aliceActions).and(everywhere(`{}`, `{}`, `{}`, `{}`)).tagged(), echoes},
	{"c-5-5", everywhere(join(unknown, alice, read, record1), join(unknown, users, read, record1),
		join(unknown, alice, read, records), join(unknown, alice, record1)), asInFixture},
}

// everywhere sends an evaluation, also as a batch, and a search of each kind.
func everywhere(evaluated, subjects, resources, actions string) requests {
	return evaluation.post(evaluated).and(evaluations.post(evaluated)).
		and(searchSubject.post(subjects)).and(searchResource.post(resources)).and(searchAction.post(actions))
}

// asInFixture demands what the fixture says to alice reading record-1, and to
// searches that start from it.
func asInFixture(answers []answer) error {
	wanted := map[api]demand{
		evaluation: decides(true), evaluations: decides(true),
		searchSubject: findsReaders, searchResource: findsReadable, searchAction: findsActions,
	}
	var errs []error
	for _, a := range answers {
		errs = append(errs, wanted[a.request.api]([]answer{a}))
	}
	return errors.Join(errs...)
}
