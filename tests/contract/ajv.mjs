// Compiles every schema of a folder with ajv, strict, and says of each event on standard input whether its schema takes it.
import { createRequire } from "node:module";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const { default: Ajv } = createRequire(join(process.cwd(), "x.js"))("ajv/dist/2020.js");
const folder = process.argv[1];
const ajv = new Ajv({ strict: true, logger: { log() {}, warn: fail, error: fail } });
const takes = {};

function fail(...words) {
  throw new Error(words.join(" "));
}

for (const name of readdirSync(folder)) {
  if (name === "rules.json") continue;
  try {
    takes[name] = ajv.compile(JSON.parse(readFileSync(join(folder, name), "utf8")));
  } catch (error) {
    fail(name + ": " + error.message);
  }
}
const verdicts = readFileSync(0, "utf8").trimEnd().split("\n").map((line) => {
  const { kind, text } = JSON.parse(line);
  const validate = takes[kind + ".v1.json"];
  return { Error: validate(text) ? "" : ajv.errorsText(validate.errors) };
});
process.stdout.write(JSON.stringify(verdicts));
