package evaluation_test

import (
	"strings"
	"testing"
)

// typed is a store whose schema has every kind of type, and no policies.
const typed = `
-- config.yaml --
type_aliases: {person: user}
-- schema.cedarschema --
entity Colour enum ["red", "green"];
entity Team;
entity user in [Team] { team?: Team };
entity doc {
  flag?: Bool,
  count?: Long,
  name?: String,
  owner?: user,
  readers?: Set<user>,
  colour?: Colour,
  price?: decimal,
  net?: ipaddr,
  at?: datetime,
  wait?: duration,
  nets?: Set<ipaddr>,
  size?: { width: Long, height?: Long, unit?: { name: String } },
  parts?: Set<{ sku: String, maker?: user }>,
  marks?: Set<{ text: String, by: user }>,
  "a/b"?: { "c~d": Long },
};
action read appliesTo { principal: [user], resource: [doc] };
`

// TestSchemaTypes sends a property of a doc and asks a policy what it sees.
func TestSchemaTypes(t *testing.T) {
	is := func(sent, condition string) [2]string { return [2]string{sent, condition} }
	tests := [][2]string{
		is(`{"flag":true}`, `resource has flag && resource.flag`),
		is(`{"count":1.0}`, `resource has count && resource.count == 1`),
		is(`{"name":"x"}`, `resource has name && resource.name == "x"`),

		// An entity by its id, or by type and id.
		is(`{"owner":"alice"}`, `resource has owner && resource.owner == user::"alice"`),
		is(`{"owner":{"type":"user","id":"alice"}}`, `resource has owner && resource.owner == user::"alice"`),
		is(`{"owner":{"id":"alice","type":"person"}}`, `resource has owner && resource.owner == user::"alice"`),
		is(`{"owner":{"id":"alice"}}`, `resource has owner && resource.owner == user::"alice"`),
		is(`{"owner":{"id":"","type":null}}`, `resource has owner && resource.owner == user::""`),
		is(`{"readers":["bob",{"type":"person","id":"carol"},{"id":"alice"}]}`,
			`resource has readers && resource.readers == [user::"alice", user::"bob", user::"carol"]`),
		is(`{"colour":"red"}`, `resource has colour && resource.colour == Colour::"red"`),
		is(`{"colour":{"type":"Colour","id":"green"}}`, `resource has colour && resource.colour == Colour::"green"`),

		// The extension types are strings, and a decimal may be a number.
		is(`{"price":"1.50"}`, `resource has price && resource.price == decimal("1.5")`),
		is(`{"price":1.5}`, `resource has price && resource.price == decimal("1.5")`),
		is(`{"price":2}`, `resource has price && resource.price == decimal("2.0")`),
		is(`{"price":-1e2}`, `resource has price && resource.price == decimal("-100.0")`),
		is(`{"net":"10.0.0.1"}`, `resource has net && resource.net.isInRange(ip("10.0.0.0/8"))`),
		is(`{"net":"2001:db8::/32"}`, `resource has net && resource.net == ip("2001:db8::/32")`),
		is(`{"nets":["10.0.0.1","::1"]}`, `resource has nets && resource.nets == [ip("10.0.0.1"), ip("::1")]`),
		is(`{"at":"2026-11-20"}`, `resource has at && resource.at == datetime("2026-11-20T00:00:00Z")`),
		is(`{"at":"2026-11-20T10:00:00+0100"}`, `resource has at && resource.at == datetime("2026-11-20T09:00:00Z")`),
		is(`{"wait":"1h30m"}`, `resource has wait && resource.wait == duration("90m")`),

		is(`{"size":{"width":1}}`, `resource has size && resource.size.width == 1 && !(resource.size has height)`),
		is(`{"size":{"width":1,"height":2,"unit":{"name":"m"}}}`,
			`resource has size.unit && resource.size.unit.name == "m"`),
		is(`{"parts":[{"sku":"a","maker":"bob"},{"sku":"b"}]}`,
			`resource has parts && !resource.parts.isEmpty()`),
		is(`{"marks":[{"by":"bob","text":"x"}]}`, `resource has marks && resource.marks == [{text: "x", by: user::"bob"}]`),
		is(`{"parts":[]}`, `resource has parts && resource.parts.isEmpty()`),
	}
	for _, test := range tests {
		s := compile(t, typed+"-- p.cedar --\n"+
			`@id("sees") permit (principal, action, resource) when { `+test[1]+` };`)
		s.allows("user alice", "read", "doc 1 "+test[0])
		s.denies("user alice", "read", "doc 1")
	}
}

// What is not of the type that the schema declares is refused, and where.
func TestSchemaTypesRefuse(t *testing.T) {
	s := compile(t, typed+`
-- p.cedar --
@id("all") permit (principal, action, resource);
`)
	refuses := func(sent, complaint string) {
		t.Helper()
		s.refuses("/resource/properties/"+complaint, "user alice", "read", "doc 1 "+sent)
	}
	const user = ` must be a user entity: its id, or {"type","id"}`

	refuses(`{"flag":1}`, "flag must be a boolean")
	refuses(`{"flag":"true"}`, "flag must be a boolean")
	refuses(`{"count":"1"}`, "count must be an integer")
	refuses(`{"count":true}`, "count must be an integer")
	refuses(`{"count":1.5}`, "count must be an integer")
	refuses(`{"count":1.23456}`, "count must be a 64-bit integer or have at most four decimals: 1.23456")
	refuses(`{"name":1}`, "name must be a string")
	refuses(`{"name":["x"]}`, "name must be a string")
	refuses(`{"name":{"a":1}}`, "name must be a string")

	refuses(`{"owner":1}`, "owner"+user)
	refuses(`{"owner":{}}`, "owner/id is required")
	refuses(`{"owner":{"type":"user"}}`, "owner/id is required")
	refuses(`{"owner":{"type":"user","id":null}}`, "owner/id is required")
	refuses(`{"owner":{"type":"user","id":1}}`, `owner/id does not belong in an entity: write {"type","id"}`)
	refuses(`{"owner":{"type":"Team","id":"a"}}`, `owner/type must be user, not "Team"`)
	refuses(`{"owner":{"type":"us-er","id":"a"}}`, `owner/type must be user, not "us-er"`)
	refuses(`{"owner":{"type":"user","id":"a","properties":{}}}`, `owner/properties does not belong in an entity: write {"type","id"}`)
	refuses(`{"owner":{"__entity":{"type":"user","id":"a"}}}`, "owner/__entity is a reserved name")
	refuses(`{"readers":"alice"}`, "readers must be an array")
	refuses(`{"readers":["alice",1]}`, "readers/1"+user)
	refuses(`{"readers":["alice",null]}`, "readers/1 must not be null")
	refuses(`{"readers":["alice",{"type":"Team","id":"a"}]}`, `readers/1/type must be user, not "Team"`)
	refuses(`{"readers":["alice",{"type":"user"}]}`, "readers/1/id is required")
	refuses(`{"colour":"blue"}`, `colour must be one of the Colour entities of the schema, not "blue"`)
	refuses(`{"colour":{"type":"Colour","id":"blue"}}`, `colour must be one of the Colour entities of the schema, not "blue"`)

	// One value is not a set of it, nor a set one value.
	refuses(`{"owner":["alice"]}`, "owner"+user)
	refuses(`{"owner":[["alice"],"bob"]}`, "owner"+user)
	refuses(`{"net":["10.0.0.1"]}`, "net must be an IP address")
	refuses(`{"price":[1.5]}`, "price must be a decimal")
	refuses(`{"at":["2026-11-20"]}`, "at must be a datetime")
	refuses(`{"wait":[]}`, "wait must be a duration")
	refuses(`{"readers":[["alice"]]}`, "readers/0"+user)

	refuses(`{"price":"+1.0"}`, "price must be a decimal")
	refuses(`{"price":"1"}`, "price must be a decimal")
	refuses(`{"price":"1.23456"}`, "price must be a decimal")
	refuses(`{"price":1.23456}`, "price must be a 64-bit integer or have at most four decimals: 1.23456")
	refuses(`{"price":1e15}`, "price is out of the range of a decimal: 1e15")
	refuses(`{"price":true}`, "price must be a decimal")
	refuses(`{"net":"10.0.0.256"}`, "net must be an IP address")
	refuses(`{"net":167772161}`, "net must be an IP address")
	refuses(`{"net":{"__extn":{"fn":"ip","arg":"10.0.0.1"}}}`, "net must be an IP address")
	refuses(`{"nets":["::1","::g"]}`, "nets/1 must be an IP address")
	refuses(`{"at":"20.11.2026"}`, "at must be a datetime")
	refuses(`{"at":1795165200}`, "at must be a datetime")
	refuses(`{"wait":"an hour"}`, "wait must be a duration")

	refuses(`{"size":[]}`, "size must be an object")
	refuses(`{"size":1}`, "size must be an object")
	refuses(`{"size":{}}`, "size/width is required by the schema")
	refuses(`{"size":{"width":null}}`, "size/width is required by the schema")
	refuses(`{"size":{"width":1,"unit":{}}}`, "size/unit/name is required by the schema")
	refuses(`{"size":{"width":1,"hieght":2}}`, `size/hieght is not declared by the schema (did you mean "height"?)`)
	refuses(`{"parts":{"sku":"a"}}`, "parts must be an array")
	refuses(`{"parts":[{"sku":"a"},{}]}`, "parts/1/sku is required by the schema")
	refuses(`{"parts":[{"sku":"a"},{"sku":"b","maker":{}}]}`, "parts/1/maker/id is required")
	refuses(`{"parts":[{"sku":"a"},{"sku":"b","maker":1}]}`, "parts/1/maker"+user)
	refuses(`{"a/b":{}}`, "a~1b/c~0d is required by the schema")

	refuses(`{"onwer":"alice"}`, `onwer is not declared by the schema (did you mean "owner"?)`)
	refuses(`{"x":1}`, "x is not declared by the schema")
}

// undeclared_attributes: drop leaves out what the schema does not declare,
// and reads the rest as strictly: AZ-99.
func TestUndeclaredAttributesDropped(t *testing.T) {
	s := compile(t, `
@id("sized") permit (principal, action, resource) when { resource has size };
-- config.yaml --
undeclared_attributes: drop
-- schema.cedarschema --
entity user;
entity doc { size?: { width: Long } };
action read appliesTo { principal: [user], resource: [doc], context: { n?: Long } };
`)
	s.allows(`user alice {"x":1}`, `read {"x":1}`, `doc 1 {"x":[{}],"size":{"width":1,"x":{"y":null}}}`, `{"x":1,"n":1}`)
	s.denies(`user alice {"x":1}`, `read`, `doc 1 {"sise":{"width":1}}`)
	s.refuses("/resource/properties/size/width must be an integer", `user alice`, `read`, `doc 1 {"x":1,"size":{"width":"1"}}`)
	s.refuses("/context/n must be an integer", `user alice`, `read`, `doc 1`, `{"x":1,"n":"1"}`)
	s.refuses("/context/__extn is a reserved name", `user alice`, `read`, `doc 1`, `{"__extn":1}`)
}

// The arguments of calls differ from tool to tool. A schema that declares them as {} has policies that
// read none, and nothing else is dropped with them.
func TestUndeclaredArgumentsDropped(t *testing.T) {
	const store = `
@id("all") permit (principal, action, resource);
-- schema.cedarschema --
entity user;
entity tool;
action call appliesTo { principal: [user], resource: [tool], context: { arguments?: ARGUMENTS, gateway?: { server: String } } };
`
	s := compile(t, strings.Replace(store, "ARGUMENTS", "{}", 1))
	s.allows(`user alice`, `call`, `tool 1`, `{"arguments":{"path":"x","deep":[{"a":1.5}]},"gateway":{"server":"files"}}`)
	s.refuses("/context/arguments must be an object", `user alice`, `call`, `tool 1`, `{"arguments":1}`)
	s.refuses("/context/gateway/tool is not declared by the schema", `user alice`, `call`, `tool 1`, `{"arguments":{"path":"x"},"gateway":{"server":"files","tool":"x"}}`)

	s = compile(t, strings.Replace(store, "ARGUMENTS", "{ path?: String }", 1))
	s.allows(`user alice`, `call`, `tool 1`, `{"arguments":{"path":"x"}}`)
	s.refuses("/context/arguments/force is not declared by the schema", `user alice`, `call`, `tool 1`, `{"arguments":{"path":"x","force":true}}`)
}

func TestSchemaOfContext(t *testing.T) {
	s := compile(t, `
@id("tool") permit (principal, action == Action::"call", resource)
when { context.tool == "x" && context.action.args.safe };
@id("plain") permit (principal, action == Action::"read", resource);
-- schema.cedarschema --
entity user;
entity doc;
action read appliesTo { principal: [user], resource: [doc] };
action call appliesTo { principal: [user], resource: [doc], context: {
  tool: String,
  since?: datetime,
  action: { args: { safe: Bool }, by?: user },
} };
`)
	const call = `call {"args":{"safe":true},"by":"bob"}`
	s.allows(`user alice`, call, `doc 1`, `{"tool":"x","since":"2026-11-20"}`)
	s.denies(`user alice`, call, `doc 1`, `{"tool":"y"}`)
	s.refuses("/context/tool is required by the schema", `user alice`, call, `doc 1`)
	s.refuses("/context/tool is required by the schema", `user alice`, call, `doc 1`, `{"tool":null}`)
	s.refuses("/context/since must be a datetime", `user alice`, call, `doc 1`, `{"tool":"x","since":1}`)
	s.refuses(`/context/tol is not declared by the schema (did you mean "tool"?)`, `user alice`, call, `doc 1`, `{"tol":"x"}`)
	s.refuses("/action/properties/args/safe is required by the schema", `user alice`, `call {"args":{}}`, `doc 1`, `{"tool":"x"}`)
	s.refuses("/action/properties/args is required by the schema", `user alice`, `call {}`, `doc 1`, `{"tool":"x"}`)
	s.refuses(`/action/properties/by/type must be user, not "doc"`,
		`user alice`, `call {"args":{"safe":true},"by":{"type":"doc","id":"1"}}`, `doc 1`, `{"tool":"x"}`)

	// Each action has its own context.
	s.allows(`user alice`, `read`, `doc 1`, `{}`)
	s.refuses(`/context/tool is not declared by the schema`, `user alice`, `read`, `doc 1`, `{"tool":"x"}`)
	s.refuses(`/action/properties/args is not declared by the schema`, `user alice`, `read {"args":1}`, `doc 1`)
}

// To say nothing is to say nothing undeclared: AZ-8, AZ-85.
func TestSchemaOfEmptyProperties(t *testing.T) {
	s := compile(t, `
@id("all") permit (principal, action, resource);
-- schema.cedarschema --
entity user;
entity doc;
action read appliesTo { principal: [user], resource: [doc] };
`)
	s.allows(`user alice {}`, `read`, `doc 1 {}`, `{}`)
	s.allows(`user alice {"x":null}`, `read`, `doc 1 {"x":null}`, `{"x":null}`)
	for _, properties := range []string{`{}`, `{"x":null}`} {
		if _, err := s.Decide(request(t, question(`user alice`, `read `+properties, `doc 1`)), environment); err != nil {
			t.Errorf("an action with the properties %s is answered with the error %v", properties, err)
		}
	}
}

// Without a schema, config.yaml says what JSON cannot.
func TestConfiguredTypes(t *testing.T) {
	s := compile(t, `
@id("owner") permit (principal, action == Action::"own", resource) when { resource.owner == principal };
@id("reader") permit (principal, action == Action::"read", resource) when { principal in resource.readers };
@id("deep") permit (principal, action == Action::"deep", resource) when { resource.meta.made.by == principal && resource.meta.free == "x" };
@id("net") permit (principal, action == Action::"net", resource) when { context.ip.isInRange(ip("10.0.0.0/8")) && context.via == [ip("::1")] };
@id("time") permit (principal, action == Action::"time", resource) when { context.at > datetime("2026-01-01") && principal.age == duration("1d") };
@id("paid") permit (principal, action == Action::"paid", resource) when { context.action.price == decimal("1.5") && context.action.to == App::shop::"a" };
-- config.yaml --
type_aliases: {person: user}
attributes:
  doc.owner: user
  doc.readers: user
  doc.meta.made.by: user
  context.ip: ipaddr
  context.via: ipaddr
  context.at: datetime
  user.age: duration
  context.action.price: decimal
  context.action.to: App::shop
`)
	s.allows(`user alice`, `own`, `doc 1 {"owner":"alice"}`)
	s.allows(`person alice`, `own`, `doc 1 {"owner":{"type":"person","id":"alice"}}`)
	s.denies(`user alice`, `own`, `doc 1 {"owner":"bob"}`)
	s.allows(`user alice`, `read`, `doc 1 {"readers":["bob",{"type":"user","id":"alice"}]}`)
	s.allows(`user alice`, `read`, `doc 1 {"readers":"alice"}`)
	s.denies(`user alice`, `read`, `doc 1 {"readers":[]}`)
	s.allows(`user alice`, `deep`, `doc 1 {"meta":{"made":{"by":"alice","at":1},"free":"x"}}`)
	s.allows(`user alice`, `net`, `doc 1`, `{"ip":"10.1.2.3","via":["::1"]}`)
	s.allows(`user alice {"age":"24h"}`, `time`, `doc 1`, `{"at":"2026-11-20"}`)
	s.allows(`user alice`, `paid {"price":1.50,"to":"a"}`, `doc 1`)
	s.allows(`user alice`, `paid {"price":"1.5","to":{"type":"App::shop","id":"a"}}`, `doc 1`)

	s.refuses(`/resource/properties/owner must be a user entity: its id, or {"type","id"}`, `user alice`, `own`, `doc 1 {"owner":1}`)
	s.refuses(`/resource/properties/readers/1/type must be user, not "doc"`, `user alice`, `read`, `doc 1 {"readers":["bob",{"type":"doc","id":"1"}]}`)
	s.refuses(`/resource/properties/meta must be an object`, `user alice`, `deep`, `doc 1 {"meta":[]}`)
	s.refuses(`/resource/properties/meta/made/by/id is required`, `user alice`, `deep`, `doc 1 {"meta":{"made":{"by":{}}}}`)
	s.refuses(`/context/ip must be an IP address`, `user alice`, `net`, `doc 1`, `{"ip":"here"}`)
	s.refuses(`/context/via/0 must be an IP address`, `user alice`, `net`, `doc 1`, `{"ip":"::1","via":[1]}`)
	s.refuses(`/action/properties/price must be a decimal`, `user alice`, `paid {"price":"+1.5","to":"a"}`, `doc 1`)

	// Only the type that a path names has it.
	s.denies(`user alice`, `own`, `other 1 {"owner":"alice"}`)
	s.denies(`user alice`, `own`, `other 1 {"owner":{"type":"user","id":"alice"}}`)
}
