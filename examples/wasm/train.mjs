// Trains in Node: node train.mjs [FOLDER]
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { train } from "./digits.mjs";

const folder = process.argv[2] ?? "build";
await train((name) => readFile(join(folder, name)), console.log);
