// Reads a JSON array of texts and writes, a line each, what JSON.parse makes of
// them: null where it refuses one. Text is its UTF-16, in hexadecimal; a number is
// ["n", text]; members are pairs, in order of their names.
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
const units = (s) => Buffer.from(s, "utf16le").toString("hex");
const tell = (v) => {
  if (typeof v === "number") return ["n", String(v)];
  if (typeof v === "string") return ["s", units(v)];
  if (Array.isArray(v)) return ["a", v.map(tell)];
  if (v === null || typeof v !== "object") return ["v", v];
  return ["o", Object.keys(v).map((name) => [units(name), tell(v[name])]).sort((a, b) => (a[0] < b[0] ? -1 : 1))];
};
for (const text of texts) {
  try {
    console.log(JSON.stringify(tell(JSON.parse(Buffer.from(text, "base64").toString("utf8")))));
  } catch {
    console.log("null");
  }
}
